"""Which replica a consumer reads from, by its rack."""

import pytest

from penstock.replication.selector import Candidate, preferred_replica

NEAR = Candidate(2, "a", 0, 100)
FAR = Candidate(3, "b", 0, 100)


@pytest.mark.promise(
    "topics",
    "Consumers read from a follower in their rack, up to its high watermark; their reads are fenced by "
    "the leader epoch (KIP-392)",
)
def test_a_follower_in_the_consumers_rack_is_preferred():
    assert preferred_replica("a", 50, "c", [NEAR, FAR]) == 2
    assert preferred_replica("b", 50, "c", [NEAR, FAR]) == 3


def test_the_leader_is_read_without_a_rack_in_its_own_and_where_nobody_is_near():
    assert preferred_replica("", 50, None, [Candidate(2, None, 0, 100), Candidate(3, "", 0, 100)]) is None
    assert preferred_replica("c", 50, "c", [Candidate(2, "c", 0, 100)]) is None
    assert preferred_replica("d", 50, "c", [NEAR, FAR]) is None
    assert preferred_replica("a", 50, "c", []) is None


def test_a_follower_must_have_the_offset():
    assert preferred_replica("a", 101, "c", [NEAR]) is None
    assert preferred_replica("a", 100, "c", [NEAR]) == 2
    assert preferred_replica("a", 9, "c", [Candidate(2, "a", 10, 100)]) is None
    assert preferred_replica("a", 0, "c", [Candidate(2, "a", -1, -1)]) is None, "it has not fetched yet"


def test_of_several_the_one_that_has_most_is_preferred():
    behind, ahead = Candidate(2, "a", 0, 60), Candidate(4, "a", 0, 90)
    assert preferred_replica("a", 50, "c", [behind, ahead]) == 4
    assert preferred_replica("a", 50, "c", [ahead, behind]) == 4
