"""Maps paths of the store to paths in ZooKeeper.

Every node is a direct child of its directory (/brokers/topics/a/state/0 is /brokers/topics/a:state:0 there),
so that no parents need to be created and deleted with their children. The root may have other nodes besides
ours.
"""

from __future__ import annotations

from penstock.metadata import layout

DIRECTORIES = (
    "/", "/brokers/ids", layout.TOPICS, "/cluster", "/config", "/deleted", "/acls", "/quotas", "/credentials"
)  # fmt: skip
"""Directories that are created when the store is opened, and never deleted."""

UNWATCHED = (layout.TOPIC_IDS,)
"""Directories whose children are not watched."""

ROOT_NODES = frozenset({layout.CONTROLLER, layout.CONTROLLER_EPOCH})

OLD_NODE = "/cluster/controller-epoch"
"""A node that exists in trees of older versions, in which the controller and the topics had other names."""

_SEPARATOR = ":"


def directory_of(path: str) -> str:
    """The directory in ZooKeeper of a path of the store."""
    if path in ROOT_NODES:
        return "/"
    first, second = path.split("/", 3)[1:3]
    return f"/{first}/{second}" if first == "brokers" else f"/{first}"


def there(path: str) -> str:
    """The path in ZooKeeper for a path of the store."""
    directory = directory_of(path)
    if directory == "/":
        return path
    return f"{directory}/{path[len(directory) + 1 :].replace('/', _SEPARATOR)}"


def here(directory: str, child: str) -> str | None:
    """The path of the store for a child in ZooKeeper; None if it is not one of our nodes."""
    if directory == "/":
        path = f"/{child}"
        return path if path in ROOT_NODES else None
    return f"{directory}/{child.replace(_SEPARATOR, '/')}"


def is_below(path: str, directory: str) -> bool:
    """Whether this path of the store is in the directory."""
    return path in ROOT_NODES if directory == "/" else path.startswith(f"{directory}/")
