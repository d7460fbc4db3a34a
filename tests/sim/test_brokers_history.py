"""The judge of the simulated cluster sees each kind of broken promise, and none in a whole history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.transactions import state
from penstock.transactions.records import encode_value
from penstock.wire.batches.records import Record, build_batch, control_marker
from tests.cluster.markers import Decisions
from tests.sim.brokers.history import Batch, End, History, Transaction, batches_of

KEY = ("t", 0)
PRODUCER = 7


def data(
    offset: int, values: list[bytes], *, epoch: int = 0, sequence: int = 0, transactional: bool = True
) -> Batch:
    raw = build_batch(
        [Record(0, 0, None, value) for value in values],
        base_offset=offset,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return batches_of(raw)[0]


def marker(offset: int, *, epoch: int = 1) -> Batch:
    return batches_of(control_marker("commit", 0, PRODUCER, epoch, 0, base_offset=offset))[0]


def prepared(*partitions: tuple[str, int]) -> bytes:
    """What the coordinator wrote when it was asked to commit."""
    decided = state.Transaction(PRODUCER, 1, 60_000, state.State.PREPARE_COMMIT, frozenset(partitions))
    return encode_value(decided._replace(client_version=state.TV_2))


class Story:
    """A transaction of two records that was committed, and one plain record after it, as all should be."""

    def __init__(self) -> None:
        self.history = History()
        self.transaction = Transaction("w", PRODUCER, 0, 2, end=End.COMMITTED)
        self.transaction.values[KEY] = [b"w:0", b"w:1"]
        self.history.transactions.append(self.transaction)
        self.history.sent[KEY] = [b"p:0"]
        self.history.acknowledged[KEY] = {b"p:0": 3}
        self.decided = Decisions()
        self.decided.add(prepared(KEY))
        plain = build_batch([Record(0, 0, None, b"p:0")], base_offset=3)
        self.log = [data(0, [b"w:0", b"w:1"]), marker(2), *batches_of(plain)]
        self.visible = {0: b"w:0", 1: b"w:1", 3: b"p:0"}

    def judged(self) -> list[str]:
        self.history.judge({KEY: self.log}, {KEY: self.visible}, self.decided)
        return self.history.violations


def lost(story: Story) -> None:
    del story.visible[3]


def doubled(story: Story) -> None:
    story.visible[4] = b"p:0"


def moved(story: Story) -> None:
    story.visible = {0: b"w:0", 1: b"w:1", 4: b"p:0"}


def torn(story: Story) -> None:
    story.transaction.end = End.COMMITTING
    del story.visible[1]


def missing(story: Story) -> None:
    del story.visible[0], story.visible[1]


def aborted_and_visible(story: Story) -> None:
    story.transaction.end = End.ABORTED


def reordered(story: Story) -> None:
    story.visible = {0: b"w:1", 1: b"w:0", 3: b"p:0"}


def hanging(story: Story) -> None:
    del story.log[1]


def ended_by_its_own_epoch(story: Story) -> None:
    story.log[1] = marker(2, epoch=0)


def gap_in_sequences(story: Story) -> None:
    story.log[0] = data(0, [b"w:0", b"w:1"], sequence=4)


def doubled_marker(story: Story) -> None:
    story.log.append(marker(4))


def marker_of_nobody(story: Story) -> None:
    story.decided = Decisions()


def marker_of_another_partition(story: Story) -> None:
    story.decided = Decisions()
    story.decided.add(prepared(("t", 1)))


def shown_and_gone(story: Story) -> None:
    story.history.read(KEY, 1, 4, b"p:1")


def shown_otherwise(story: Story) -> None:
    story.history.read(KEY, 1, 3, b"p:0")
    story.history.read(KEY, 1, 3, b"p:1")


def test_a_whole_history_is_not_blamed() -> None:
    assert Story().judged() == []


@pytest.mark.promise(
    "reassignment",
    "On every schedule of kills, power losses, pauses and lost connections of three real brokers: no "
    "acknowledged record is lost, duplicated or reordered; transactions are atomic, none hangs or is "
    "ended by a marker of its own epoch, and a coordinator decided every marker; LATEST and committed "
    "offsets never decrease; every client finishes",
)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lost, "is lost"),
        (doubled, "2 times"),
        (moved, "was acknowledged at"),
        (torn, "torn"),
        (missing, "is not visible"),
        (aborted_and_visible, "is visible"),
        (reordered, "before what was sent before it"),
        (hanging, "hangs"),
        (ended_by_its_own_epoch, "has the epoch 0 of the transaction that it ends"),
        (doubled_marker, "the 2. of them, 1 were decided"),
        (marker_of_nobody, "the 1. of them, 0 were decided"),
        (marker_of_another_partition, "the 1. of them, 0 were decided"),
        (gap_in_sequences, "has sequence 4, not 0"),
        (shown_and_gone, "was shown"),
        (shown_otherwise, "is now"),
    ],
)
def test_each_broken_promise_is_seen(fault: Callable[[Story], None], words: str) -> None:
    story = Story()
    fault(story)
    assert any(words in violation for violation in story.judged())
