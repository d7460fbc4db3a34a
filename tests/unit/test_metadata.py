"""The local metadata store: versions, atomic changes, ephemeral nodes, what survives; and the image."""

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.metadata import (
    BadVersion,
    BrokerInfo,
    ClusterImage,
    NodeExists,
    NoNode,
    PartitionImage,
    StoreUnavailable,
    TopicImage,
    layout,
)
from penstock.metadata.local import LocalStore
from penstock.metadata.store import Check, Create, Delete, Op, Set


def run(tmp_path: Path, use: Callable[[LocalStore], Awaitable[None]]) -> None:
    async def session() -> None:
        store = LocalStore(str(tmp_path / "metadata.sqlite"))
        try:
            await use(store)
        finally:
            await store.close()

    asyncio.run(session())


def test_a_value_is_read_back_with_its_version(tmp_path: Path) -> None:
    async def use(store: LocalStore) -> None:
        assert await store.get("/a") is None
        await store.create("/a", b"one")
        assert await store.get("/a") == (b"one", 0)
        assert await store.compare_and_set("/a", b"two", 0) == 1
        assert await store.get("/a") == (b"two", 1)

    run(tmp_path, use)


@pytest.mark.promise("topics", "Metadata changes are atomic and durable")
def test_a_stale_version_changes_nothing(tmp_path: Path) -> None:
    async def use(store: LocalStore) -> None:
        await store.create("/a", b"one")
        await store.compare_and_set("/a", b"two", 0)
        with pytest.raises(BadVersion):
            await store.compare_and_set("/a", b"three", 0)
        with pytest.raises(BadVersion):
            await store.delete("/a", 0)
        assert await store.get("/a") == (b"two", 1)

    run(tmp_path, use)


def test_missing_and_existing_nodes_are_told_by_path(tmp_path: Path) -> None:
    async def use(store: LocalStore) -> None:
        await store.create("/a", b"")
        with pytest.raises(NodeExists, match="/a"):
            await store.create("/a", b"")
        with pytest.raises(NoNode, match="/b"):
            await store.delete("/b")
        with pytest.raises(NoNode, match="/b"):
            await store.compare_and_set("/b", b"", -1)

    run(tmp_path, use)


def test_list_gives_everything_below_and_nothing_beside(tmp_path: Path) -> None:
    async def use(store: LocalStore) -> None:
        for path in ("/topics/a", "/topics/a/state/0", "/topics/a-b", "/topics/a.b", "/topicsz", "/x"):
            await store.create(path, path.encode())
        assert list(await store.list("/topics/a")) == ["/topics/a/state/0"]
        assert set(await store.list("/topics")) == {
            "/topics/a",
            "/topics/a/state/0",
            "/topics/a-b",
            "/topics/a.b",
        }
        assert len(await store.list("/")) == 6

    run(tmp_path, use)


@pytest.mark.promise("topics", "Metadata changes are atomic and durable")
@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Create("/there", b""), NodeExists),
        (Set("/there", b"", 5), BadVersion),
        (Delete("/missing"), NoNode),
        (Check("/there", 5), BadVersion),
    ],
)
def test_a_transaction_is_all_or_nothing(tmp_path: Path, failing: Op, error: type[Exception]) -> None:
    async def use(store: LocalStore) -> None:
        await store.create("/there", b"old")
        await store.create("/other", b"old")
        with pytest.raises(error):
            await store.multi([Create("/new", b""), Set("/other", b"x", 0), failing])
        assert await store.list("/") == {"/there": (b"old", 0), "/other": (b"old", 0)}

    run(tmp_path, use)


def test_a_committed_change_survives_and_an_ephemeral_node_does_not(tmp_path: Path) -> None:
    async def write(store: LocalStore) -> None:
        await store.create("/kept", b"1")
        await store.create("/brokers/1", b"", ephemeral=True)
        assert await store.get("/brokers/1") is not None

    async def read(store: LocalStore) -> None:
        assert await store.list("/") == {"/kept": (b"1", 0)}

    run(tmp_path, write)
    run(tmp_path, read)


@pytest.mark.promise("topics", "Topics in the metadata file of an older version are read")
def test_topics_of_an_older_file_are_found(tmp_path: Path) -> None:
    async def write(store: LocalStore) -> None:
        await store.multi(
            [Create("/topics/a", b"a"), Create("/topics/a/state/0", b"1"), Create("/topicsz", b"")]
        )
        await store.compare_and_set("/topics/a/state/0", b"2", 0)

    async def read(store: LocalStore) -> None:
        topic, state = layout.topic_path("a"), layout.state_path("a", 0)
        assert await store.list("/") == {topic: (b"a", 0), state: (b"2", 1), "/topicsz": (b"", 0)}

    run(tmp_path, write)
    run(tmp_path, read)
    run(tmp_path, read)


def test_an_ephemeral_node_of_a_crashed_process_is_gone(tmp_path: Path) -> None:
    async def crash_and_restart() -> None:
        path = str(tmp_path / "metadata.sqlite")
        crashed = LocalStore(path)
        await crashed.create("/brokers/1", b"", ephemeral=True)
        restarted = LocalStore(path)
        assert await restarted.list("/") == {}
        await restarted.close()
        await crashed.close()

    asyncio.run(crash_and_restart())


def test_watchers_hear_of_changes_at_or_below_their_prefix(tmp_path: Path) -> None:
    heard: list[frozenset[str]] = []

    async def use(store: LocalStore) -> None:
        await store.watch("/topics", heard.append)
        await store.multi([Create("/topics/a", b""), Create("/topics/a/state/0", b""), Create("/other", b"")])
        await store.create("/topicsz", b"")
        await store.compare_and_set("/topics/a", b"x", 0)
        await store.delete("/topics/a")

    run(tmp_path, use)
    assert heard == [frozenset({"/topics/a", "/topics/a/state/0"}), {"/topics/a"}, {"/topics/a"}]


def test_sql_never_runs_on_the_event_loops_thread(tmp_path: Path) -> None:
    async def use(store: LocalStore) -> None:
        seen = await store._run(lambda db: threading.current_thread().name)
        assert seen.startswith("metadata")
        assert seen != threading.current_thread().name

    run(tmp_path, use)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"not a database" * 100)

    async def use(store: LocalStore) -> None:
        with pytest.raises(StoreUnavailable, match=r"metadata\.sqlite"):
            await store.list("/")

    run(tmp_path, use)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def use() -> None:
        store = LocalStore(str(tmp_path / "metadata.sqlite"))
        await store.create("/a", b"")
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get("/a")

    asyncio.run(use())


def _topic(name: str, epoch: int = 0) -> TopicImage:
    return TopicImage(name, uuid.uuid4(), (PartitionImage(0, 1, epoch, (1,), (1,)),))


def test_a_new_image_shares_what_did_not_change_and_leaves_the_old_one_alone() -> None:
    a, b = _topic("a", epoch=4), _topic("b")
    one = ClusterImage("c", 1).with_topics([a])
    two = one.with_topics([b])
    three = two.without_topics([a])
    assert set(one.topics) == {"a"}
    assert two.topics["a"] is a
    assert (set(three.topics), set(three.topics_by_id)) == ({"b"}, {b.id})
    assert three.deleted_epochs == {"a": 4}
    assert three.with_topics([_topic("a", epoch=5)]).deleted_epochs == {}
    assert one.version < two.version < three.version


def test_an_image_finds_partitions_by_name_and_index() -> None:
    image = ClusterImage("c", 1).with_topics([_topic("a")]).with_broker(BrokerInfo(1, "localhost", 9092))
    assert image.partition("a", 0) is image.topics["a"].partitions[0]
    assert image.partition("a", 1) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None
    assert image.brokers[1].port == 9092


def test_only_kafkas_internal_topics_are_internal() -> None:
    assert _topic("__consumer_offsets").is_internal
    assert not _topic("__mine").is_internal
