"""Where in ZooKeeper a path of the store lies.

A path is one level below its directory, /brokers/topics/a/state/0 being /brokers/topics/a:state:0 there, so
that no parents come and go with their children. The root has other nodes beside ours.
"""

from __future__ import annotations

from penstock.metadata import layout

DIRECTORIES = (
    "/", "/brokers/ids", layout.TOPICS, "/cluster", "/config", "/deleted", "/acls", "/quotas", "/credentials"
)  # fmt: skip
"""Made when the store is opened; they are never deleted."""

UNWATCHED = (layout.TOPIC_IDS,)
"""The same, of nodes whose coming and going nobody follows."""

ROOT_NODES = frozenset({layout.CONTROLLER, layout.CONTROLLER_EPOCH})

OLD_NODE = "/cluster/controller-epoch"
"""What trees have that were written when the controller and the topics had other names."""

_SEPARATOR = ":"


def directory_of(path: str) -> str:
    """The directory in ZooKeeper that one of our paths lies in."""
    if path in ROOT_NODES:
        return "/"
    first, second = path.split("/", 3)[1:3]
    return f"/{first}/{second}" if first == "brokers" else f"/{first}"


def there(path: str) -> str:
    """The path in ZooKeeper of one of ours."""
    directory = directory_of(path)
    if directory == "/":
        return path
    return f"{directory}/{path[len(directory) + 1 :].replace('/', _SEPARATOR)}"


def here(directory: str, child: str) -> str | None:
    """Our path of a child in ZooKeeper; None if it is not a node of ours."""
    if directory == "/":
        path = f"/{child}"
        return path if path in ROOT_NODES else None
    return f"{directory}/{child.replace(_SEPARATOR, '/')}"


def is_below(path: str, directory: str) -> bool:
    """Whether this path of ours lies in the directory."""
    return path in ROOT_NODES if directory == "/" else path.startswith(f"{directory}/")
