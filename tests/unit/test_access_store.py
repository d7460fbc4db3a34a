"""ACLs and quotas in the metadata store: made, found again after a restart, deleted by filters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.controller import Controller
from penstock.controller.access import QuotaChange
from penstock.errors import InvalidRequest
from penstock.metadata.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from penstock.metadata.image import ClusterImage
from penstock.metadata.layout import quota_path
from penstock.metadata.local import LocalStore


def acl(name: str = "t", **changes: object) -> Acl:
    fields: dict[str, object] = {
        "resource_type": int(ResourceType.TOPIC), "name": name, "pattern_type": int(PatternType.LITERAL),
        "principal": "User:alice", "host": "*", "operation": int(Operation.READ),
        "permission": int(Permission.ALLOW),
    }  # fmt: skip
    return Acl(**(fields | changes))  # type: ignore[arg-type]


def with_controller(directory: Path, work: Callable[[Controller], Awaitable[None]]) -> ClusterImage:
    """The image that a broker reads when it starts again."""

    async def main() -> ClusterImage:
        for step in (work, None):
            controller = Controller(LocalStore(str(directory / "store")), 1, ManualClock())
            image = await controller.load()
            try:
                if step is not None:
                    await step(controller)
                    kept = controller.image
            finally:
                await controller.close()
        assert (image.acls, image.quotas) == (kept.acls, kept.quotas)
        return image

    return asyncio.run(main())


@pytest.mark.promise(
    "access", "ACLs and quotas survive a restart; only the entries that are invalid are rejected"
)
def test_acls_are_there_after_a_restart_and_one_that_is_there_already_is_no_error(tmp_path: Path) -> None:
    async def work(controller: Controller) -> None:
        assert await controller.create_acls([acl(), acl(), acl("u/ü:*")]) == [None, None, None]
        before = controller.image
        assert await controller.create_acls([acl()]) == [None]
        assert controller.image is before

    assert set(with_controller(tmp_path, work).acls.values()) == {acl(), acl("u/ü:*")}


@pytest.mark.parametrize(
    "bad",
    [
        acl(""),
        acl("t", resource_type=1),
        acl("t", resource_type=9),
        acl("t", pattern_type=int(PatternType.MATCH)),
        acl("t", operation=int(Operation.ANY)),
        acl("t", permission=int(Permission.ANY)),
        acl("t", principal="alice"),
        acl("other", resource_type=int(ResourceType.CLUSTER)),
    ],
)
def test_an_acl_that_means_nothing_is_refused_and_the_others_are_made(tmp_path: Path, bad: Acl) -> None:
    async def work(controller: Controller) -> None:
        refused, made = await controller.create_acls([bad, acl()])
        assert isinstance(refused, InvalidRequest)
        assert made is None

    assert set(with_controller(tmp_path, work).acls.values()) == {acl()}


@pytest.mark.promise(
    "access", "ACLs and quotas survive a restart; only the entries that are invalid are rejected"
)
def test_filters_delete_what_they_find_and_say_what_it_was(tmp_path: Path) -> None:
    async def work(controller: Controller) -> None:
        await controller.create_acls([acl("a"), acl("b"), acl("c")])
        filters = [AclFilter(name="a"), AclFilter(name="a"), AclFilter(name="x"), AclFilter(operation=99)]
        same, again, nothing, unknown = await controller.delete_acls(filters)
        assert isinstance(same, dict) and set(same.values()) == {acl("a")}
        assert again == same
        assert nothing == {}
        assert isinstance(unknown, InvalidRequest)

    assert {one.name for one in with_controller(tmp_path, work).acls.values()} == {"b", "c"}


@pytest.mark.promise(
    "access", "ACLs and quotas survive a restart; only the entries that are invalid are rejected"
)
def test_quotas_are_there_after_a_restart_under_any_name(tmp_path: Path) -> None:
    names = ["alice", "CN=a,O=b/c", "..", "ü=%", "client-id"]

    async def work(controller: Controller) -> None:
        changes = [QuotaChange([("user", name)], [("producer_byte_rate", 1000.0)]) for name in names]
        changes.append(QuotaChange([("user", None), ("client-id", "c")], [("request_percentage", 12.5)]))
        changes.append(QuotaChange([("ip", None)], [("connection_creation_rate", 5.0)]))
        assert await controller.alter_client_quotas(changes) == [None] * len(changes)
        gone = QuotaChange([("user", "alice")], [("producer_byte_rate", None)])
        assert await controller.alter_client_quotas([gone]) == [None]
        assert await controller.alter_client_quotas([gone], validate_only=True) == [None]

    image = with_controller(tmp_path, work)
    assert image.quotas == {
        **{(("user", name),): {"producer_byte_rate": 1000.0} for name in names[1:]},
        (("client-id", "c"), ("user", None)): {"request_percentage": 12.5},
        (("ip", None),): {"connection_creation_rate": 5.0},
    }
    assert len({quota_path(entity) for entity in image.quotas}) == len(image.quotas)


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ([], [("producer_byte_rate", 1.0)]),
        ([("group", "g")], [("producer_byte_rate", 1.0)]),
        ([("user", "")], [("producer_byte_rate", 1.0)]),
        ([("ip", "10.0.0.1"), ("user", "u")], [("connection_creation_rate", 1.0)]),
        ([("ip", "no address")], [("connection_creation_rate", 1.0)]),
        ([("ip", "10.0.0.1")], [("producer_byte_rate", 1.0)]),
        ([("user", "u")], [("connection_creation_rate", 1.0)]),
        ([("user", "u")], [("retention.ms", 1.0)]),
        ([("user", "u")], [("producer_byte_rate", 0.0)]),
        ([("user", "u")], [("producer_byte_rate", 1.5)]),
        ([("user", "u")], [("producer_byte_rate", float("inf"))]),
        ([("user", "u")], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
    ],
)
def test_a_quota_that_means_nothing_is_refused(
    tmp_path: Path, entity: list[tuple[str, str | None]], ops: list[tuple[str, float | None]]
) -> None:
    async def work(controller: Controller) -> None:
        (error,) = await controller.alter_client_quotas([QuotaChange(entity, ops)])
        assert isinstance(error, InvalidRequest)

    assert with_controller(tmp_path, work).quotas == {}
