"""Classic groups: joining, generations, sessions, static members, crashes. The shard alone, no broker."""

from __future__ import annotations

import pytest

from penstock.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from penstock.wire.message import Message
from tests.sim.group_host import Host, join_request


@pytest.mark.promise(
    "groups", "A new member gets its id first and then joins (KIP-394); clients older than that join at once"
)
def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    host = Host()
    answer = host.answers[host.join("")]
    assert answer.error_code == MemberIdRequired.code
    assert answer.member_id.startswith("c-")
    token = host.join(answer.member_id)
    assert token not in host.answers
    host.tick()
    joined = host.answers[token]
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, answer.member_id)
    assert [member.member_id for member in joined.members] == [answer.member_id]
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


@pytest.mark.promise(
    "groups", "A new member gets its id first and then joins (KIP-394); clients older than that join at once"
)
def test_versions_before_4_join_at_once() -> None:
    host = Host()
    token = host.join("", version=3)
    host.tick()
    assert host.answers[token].error_code == 0


@pytest.mark.promise(
    "groups", "Session timeouts and the initial rebalance delay, which may be 0, follow the broker's clock"
)
def test_members_get_the_leaders_assignment() -> None:
    host = Host()
    first, a = host.join_new()
    second, b = host.join_new()
    host.tick()
    assert host.answers[first].generation_id == host.answers[second].generation_id == 1
    assert host.answers[second].members == []
    waiting = host.sync(b, 1)
    assert waiting not in host.answers
    leading = host.sync(a, 1, {a: b"A", b: b"B"})
    assert host.answers[leading].assignment == b"A"
    assert host.answers[waiting].assignment == b"B"
    assert (host.answers[waiting].protocol_type, host.answers[waiting].protocol_name) == ("consumer", "range")
    assert host.state() == "Stable"
    assert host.heartbeat(a, 1) == host.heartbeat(b, 1) == 0


@pytest.mark.promise(
    "groups", "Session timeouts and the initial rebalance delay, which may be 0, follow the broker's clock"
)
def test_the_initial_delay_gathers_members_and_grows_with_each() -> None:
    host = Host(group_initial_rebalance_delay_ms=3000)
    first, _ = host.join_new()
    host.tick(2900)
    second, _ = host.join_new()
    host.tick(200)
    assert first not in host.answers
    host.tick(3000)
    assert host.answers[first].generation_id == host.answers[second].generation_id == 1


@pytest.mark.promise(
    "groups", "Session timeouts and the initial rebalance delay, which may be 0, follow the broker's clock"
)
def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    host = Host(group_initial_rebalance_delay_ms=3000)
    first, _ = host.join_new(rebalance_ms=5000)
    for _ in range(5):
        host.tick(1000)
        host.join_new(rebalance_ms=5000)
    host.tick(1000)
    assert host.answers[first].error_code == 0


def test_a_join_calls_the_others_to_rejoin() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    token, b = host.join_new()
    assert host.state() == "PreparingRebalance"
    assert host.heartbeat(ids["a"], generation) == RebalanceInProgress.code
    rejoin = host.join(ids["a"])
    assert host.answers[rejoin].generation_id == host.answers[token].generation_id == 2
    assert len(host.answers[rejoin].members) == 2


@pytest.mark.promise(
    "groups", "A member's leave takes effect immediately; many members can leave in one request"
)
def test_a_leave_is_prompt_and_the_last_one_empties_the_group() -> None:
    host = Host()
    ids, generation = host.stable_group("a", "b")
    assert host.leave((ids["b"], None)) == [0]
    assert host.heartbeat(ids["a"], generation) == RebalanceInProgress.code
    rejoin = host.join(ids["a"])
    assert host.answers[rejoin].generation_id == 2
    assert host.leave((ids["a"], None)) == [0]
    assert host.state() == "Empty"


@pytest.mark.promise(
    "groups", "A member's leave takes effect immediately; many members can leave in one request"
)
def test_many_members_leave_in_one_request_and_each_is_answered() -> None:
    host = Host()
    ids, _ = host.stable_group("a", "b", "c")
    assert host.leave((ids["a"], None), ("nobody", None), (ids["b"], None)) == [0, UnknownMemberId.code, 0]
    assert host.join(ids["c"]) in host.answers
    assert host.leave(("x", None), group="other") == [UnknownMemberId.code]


def test_a_pending_member_that_leaves_does_not_hold_up_the_rebalance() -> None:
    host = Host()
    ids, _ = host.stable_group("a")
    pending = host.answers[host.join("")].member_id
    rejoin = host.join(ids["a"])  # the leader: forces a rebalance
    assert rejoin not in host.answers
    assert host.leave((pending, None)) == [0]
    assert host.answers[rejoin].generation_id == 2


@pytest.mark.promise(
    "groups", "A new member gets its id first and then joins (KIP-394); clients older than that join at once"
)
def test_an_unused_member_id_is_forgotten_after_a_session() -> None:
    host = Host()
    ids, _ = host.stable_group("a")
    pending = host.answers[host.join("")].member_id
    rejoin = host.join(ids["a"])
    host.tick(10_000)
    assert host.answers[rejoin].generation_id == 2
    assert host.answers[host.join(pending)].error_code == UnknownMemberId.code


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    host = Host()
    ids, generation = host.stable_group("a", "b")
    for _ in range(3):
        host.tick(4_000)
        host.heartbeat(ids["a"], generation)
    assert host.heartbeat(ids["b"], generation) == UnknownMemberId.code
    assert host.heartbeat(ids["a"], generation) == RebalanceInProgress.code


def test_waiting_requests_stand_for_heartbeats_but_not_those_of_a_new_member() -> None:
    host = Host()
    ids, _ = host.stable_group("a", "b", rebalance_ms=900_000, session_ms=600_000)
    rejoin = host.join(ids["a"], rebalance_ms=900_000, session_ms=600_000)
    new, _ = host.join_new(rebalance_ms=900_000)
    for _ in range(9):
        host.tick(60_000)
        host.heartbeat(ids["b"], 1)
    assert rejoin not in host.answers
    assert host.answers[new].error_code == UnknownMemberId.code  # after new_member_join_timeout_ms
    host.join(ids["b"], rebalance_ms=900_000, session_ms=600_000)
    assert host.answers[rejoin].generation_id == 2


@pytest.mark.promise(
    "groups", "A member that does not rejoin or sync in time is removed, also if it is the leader"
)
def test_who_does_not_rejoin_in_time_is_left_behind() -> None:
    host = Host()
    ids, _ = host.stable_group("a", "b", rebalance_ms=30_000, session_ms=1_000_000)
    rejoin = host.join(ids["a"], rebalance_ms=30_000)
    host.tick(30_000)
    answer = host.answers[rejoin]
    assert [member.member_id for member in answer.members] == [ids["a"]]
    assert host.heartbeat(ids["b"], 2) == UnknownMemberId.code


@pytest.mark.promise(
    "groups", "A member that does not rejoin or sync in time is removed, also if it is the leader"
)
def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    host = Host()
    ids, generation = host.stable_group("a", "b", session_ms=1_000_000)
    leader = host.shard.groups["g"].leader  # type: ignore[attr-defined]
    follower = next(m for m in ids.values() if m != leader)
    rejoin = host.join(follower, protocols={"range": b"changed"})
    host.tick(60_000)
    assert host.answers[rejoin].leader == follower


@pytest.mark.promise(
    "groups", "A member that does not rejoin or sync in time is removed, also if it is the leader"
)
def test_members_that_do_not_sync_in_time_are_removed() -> None:
    host = Host()
    tokens = [host.join_new(rebalance_ms=20_000, session_ms=1_000_000) for _ in range(2)]
    host.tick()
    leader = host.answers[tokens[0][0]].leader
    synced = host.sync(leader, 1, {})
    assert host.answers[synced].error_code == 0
    host.tick(20_000)
    assert host.heartbeat(leader, 1) == RebalanceInProgress.code
    again = host.join(leader)
    assert len(host.answers[again].members) == 1


def test_a_change_while_the_leader_assigns_begins_anew() -> None:
    host = Host()
    tokens = [host.join_new() for _ in range(2)]
    host.tick()
    leader = host.answers[tokens[0][0]].leader
    follower = next(m for _, m in tokens if m != leader)
    waiting = host.sync(follower, 1)
    host.join_new()
    assert host.answers[waiting].error_code == RebalanceInProgress.code
    assert host.answers[host.sync(leader, 1, {})].error_code == RebalanceInProgress.code


@pytest.mark.promise("groups", "A member whose response was lost gets it again when it retries")
def test_a_lost_answer_to_a_join_is_given_again() -> None:
    host = Host()
    tokens = [host.join_new() for _ in range(2)]
    host.tick()
    leader = host.answers[tokens[0][0]].leader
    follower = next(m for _, m in tokens if m != leader)
    assert host.answers[host.join(leader)] == host.answers[tokens[0][0]]
    host.sync(leader, 1, {follower: b"F"})
    assert host.answers[host.join(follower)].generation_id == 1
    assert host.answers[host.sync(follower, 1)].assignment == b"F"


@pytest.mark.promise("groups", "A member whose response was lost gets it again when it retries")
def test_an_older_waiting_join_of_a_member_is_answered_too() -> None:
    host = Host()
    ids, _ = host.stable_group("a", "b")
    older = host.join(ids["a"])
    newer = host.join(ids["a"])
    assert host.answers[older].error_code == RebalanceInProgress.code
    host.join(ids["b"])
    assert host.answers[newer].generation_id == 2


def test_the_protocol_is_the_one_that_all_know_and_most_want() -> None:
    host = Host()
    a, _ = host.join_new(protocols={"x": b"ax", "y": b"ay", "z": b""})
    b, _ = host.join_new(protocols={"y": b"by", "x": b"bx"})
    c, _ = host.join_new(protocols={"y": b"cy", "x": b"cx", "w": b""})
    host.tick()
    assert {host.answers[token].protocol_name for token in (a, b, c)} == {"y"}
    assert {member.metadata for member in host.answers[a].members} == {b"ay", b"by", b"cy"}
    stranger = host.join("", protocols={"w": b""})
    assert host.answers[stranger].error_code == InconsistentGroupProtocol.code
    stranger = host.join("", protocol_type="connect", protocols={"y": b""})
    assert host.answers[stranger].error_code == InconsistentGroupProtocol.code


@pytest.mark.parametrize("fields", [{"protocols": {}}, {"protocol_type": ""}])
def test_a_group_needs_a_protocol(fields: dict[str, object]) -> None:
    host = Host()
    answer = host.answers[host.send("join_group", join_request("g", **fields))]  # type: ignore[arg-type]
    assert answer.error_code == InconsistentGroupProtocol.code


def test_a_protocol_named_twice_counts_once() -> None:
    host = Host()
    a, _ = host.join_new(protocols=[("x", b"1"), ("x", b"2"), ("y", b"")])
    b, member = host.join_new(protocols={"y": b"", "x": b""})
    host.tick()
    assert host.answers[a].error_code == 0
    assert host.leave((member, None)) == [0]
    assert host.answers[host.join(host.answers[a].member_id, protocols={"x": b"1"})].protocol_name == "x"


def test_a_group_has_at_most_group_max_size_members() -> None:
    host = Host(group_max_size=2)
    host.stable_group("a", "b")
    assert host.answers[host.join("")].error_code == GroupMaxSizeReached.code
    assert host.state() == "Stable"


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_the_errors_for_bad_requests_are_kafkas() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    a = ids["a"]
    assert host.answers[host.join("", group="")].error_code == InvalidGroupId.code
    assert host.answers[host.join("", group="g" * 40_000)].error_code == InvalidGroupId.code
    assert host.answers[host.join("", session_ms=-1)].error_code == InvalidSessionTimeout.code
    assert host.answers[host.join("", session_ms=2**31 - 1)].error_code == InvalidSessionTimeout.code
    assert host.answers[host.join("nobody")].error_code == UnknownMemberId.code
    assert host.answers[host.join("nobody", group="new")].error_code == UnknownMemberId.code
    assert host.answers[host.sync("nobody", 1)].error_code == UnknownMemberId.code
    assert host.answers[host.sync(a, 99)].error_code == IllegalGeneration.code
    assert host.answers[host.sync(a, generation, group="")].error_code == InvalidGroupId.code
    assert host.answers[host.sync(a, generation, group="x")].error_code == UnknownMemberId.code
    wrong = host.sync(a, generation, protocol_name="other")
    assert host.answers[wrong].error_code == InconsistentGroupProtocol.code
    assert host.heartbeat("nobody", 1) == UnknownMemberId.code
    assert host.heartbeat(a, generation - 1) == IllegalGeneration.code
    assert host.heartbeat(a, 1, group="") == InvalidGroupId.code
    assert host.heartbeat(a, 1, group="x") == UnknownMemberId.code
    pending = host.answers[host.join("")].member_id
    assert host.answers[host.join(pending, instance="i")].error_code == UnknownServerError.code
    assert host.heartbeat(a, generation) == 0


def test_a_negative_rebalance_timeout_is_no_time_at_all() -> None:
    host = Host()
    token, member = host.join_new(rebalance_ms=-5)
    host.tick()
    assert host.answers[token].error_code == 0
    host.tick(1)  # no time for SyncGroup either
    assert host.heartbeat(member, 1) == UnknownMemberId.code


# static membership


def static_pair(host: Host) -> tuple[str, str]:
    """Static members i1 (the leader) and i2, stable in generation 1."""
    tokens = [host.join("", instance=name) for name in ("i1", "i2")]
    host.tick()
    first, second = (host.answers[token].member_id for token in tokens)
    host.sync(second, 1, instance="i2")
    host.sync(first, 1, {first: b"1", second: b"2"}, instance="i1")
    return first, second


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    host = Host()
    first, second = static_pair(host)
    assert first.startswith("i1-")
    answer = host.answers[host.join("", instance="i2")]
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id != second
    assert host.answers[host.sync(answer.member_id, 1, instance="i2")].assignment == b"2"
    assert host.heartbeat(first, 1, instance="i1") == 0


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    host = Host()
    first, _ = static_pair(host)
    answer = host.answers[host.join("", instance="i1")]
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2  # it still has to watch their topics
    older = host.answers[host.join("", instance="i1", version=8)]
    assert older.leader == answer.member_id != older.member_id
    assert older.members == []


def test_the_replaced_process_is_fenced() -> None:
    host = Host()
    first, second = static_pair(host)
    host.join("", instance="i2")
    assert host.heartbeat(second, 1, instance="i2") == FencedInstanceId.code
    assert host.answers[host.join(second, instance="i2")].error_code == FencedInstanceId.code
    assert host.answers[host.sync(second, 1, instance="i2")].error_code == FencedInstanceId.code
    assert host.commit(1, member_id=second, generation=1, instance="i2") == FencedInstanceId.code
    assert host.leave((second, "i2")) == [FencedInstanceId.code]
    assert host.heartbeat(second, 1) == UnknownMemberId.code


def test_a_waiting_request_of_a_fenced_process_is_answered() -> None:
    host = Host()
    first, second = static_pair(host)
    host.join(first, instance="i1")  # the leader calls for a rebalance
    waiting = host.join(second, instance="i2")
    assert waiting in host.answers
    host.join_new()
    old = host.join(second, instance="i2")
    host.join("", instance="i2")
    assert host.answers[old].error_code == FencedInstanceId.code


def test_a_static_member_with_another_protocol_calls_for_a_rebalance() -> None:
    host = Host()
    tokens = [host.join("", instance=name, protocols={"x": b"", "y": b""}) for name in ("i1", "i2")]
    host.tick()
    first, second = (host.answers[token].member_id for token in tokens)
    host.sync(first, 1, {}, instance="i1")
    token = host.join("", instance="i2", protocols={"y": b""})
    assert token not in host.answers
    assert host.heartbeat(first, 1, instance="i1") == RebalanceInProgress.code


@pytest.mark.promise(
    "groups",
    "Static members (KIP-345) return without a rebalance; if two processes have the same id, the older "
    "one is fenced",
)
def test_an_absent_static_member_keeps_its_place_until_its_session_ends() -> None:
    host = Host()
    first, _ = static_pair(host)
    rejoin = host.join(first, instance="i1", rebalance_ms=5000)
    host.tick(60_000)
    assert rejoin in host.answers


def test_an_administrator_removes_static_members_by_name() -> None:
    host = Host()
    static_pair(host)
    assert host.leave(("", "i1"), ("", "nobody"), ("", None)) == [
        0,
        UnknownMemberId.code,
        UnknownMemberId.code,
    ]


# crashes


@pytest.mark.promise(
    "groups", "After kill -9 of the broker, members continue in their generation without a rebalance"
)
def test_members_go_on_with_their_generation_after_a_crash() -> None:
    host = Host()
    ids, generation = host.stable_group("a", "b")
    host.crash()
    assert host.state() == "Stable"
    assert host.heartbeat(ids["a"], generation) == host.heartbeat(ids["b"], generation) == 0
    assert host.answers[host.sync(ids["b"], generation)].assignment == ids["b"].encode()
    described = host.ask("describe_groups", "g", 5)
    assert {m.member_id for m in described.members} == set(ids.values())
    host.tick(10_000)  # nobody sends heartbeats: their sessions began with the load
    assert host.heartbeat(ids["a"], generation) == UnknownMemberId.code


@pytest.mark.promise(
    "groups",
    "Static members (KIP-345) return without a rebalance; if two processes have the same id, the older "
    "one is fenced",
)
def test_a_static_replacement_survives_a_crash() -> None:
    host = Host()
    first, second = static_pair(host)
    new = host.answers[host.join("", instance="i2")].member_id
    host.crash()
    assert host.heartbeat(second, 1, instance="i2") == FencedInstanceId.code
    assert host.heartbeat(new, 1, instance="i2") == 0
    assert host.answers[host.sync(new, 1, instance="i2")].assignment == b"2"


@pytest.mark.promise(
    "groups", "After kill -9 of the broker, members continue in their generation without a rebalance"
)
def test_the_next_generation_after_a_crash_is_higher() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    host.leave((ids["a"], None))
    host.crash()
    assert host.state() == "Empty"
    _, later = host.stable_group("b")
    assert later > generation + 1


def test_an_unfinished_rebalance_does_not_survive_and_members_begin_anew() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    token, b = host.join_new()
    host.crash()
    assert host.heartbeat(ids["a"], generation) == 0
    assert host.answers[host.join(b)].error_code == UnknownMemberId.code
    assert token not in host.answers  # its connection went with the broker


def test_a_group_larger_than_the_limit_shrinks_after_a_restart() -> None:
    host = Host()
    ids, generation = host.stable_group("a", "b", "c")
    host.settings = type(host.settings)(group_initial_rebalance_delay_ms=0, group_max_size=2)
    host.crash()
    tokens = [host.join(member) for member in ids.values()]
    host.tick(60_000)
    codes = sorted(host.answers[token].error_code for token in tokens)
    assert codes == [0, 0, GroupMaxSizeReached.code]


@pytest.mark.promise(
    "groups",
    "A failed write does not stop a group; when a coordinator moves, all waiting requests get a response",
)
def test_a_failed_write_leaves_a_group_that_goes_on() -> None:
    host = Host()
    tokens = [host.join_new() for _ in range(2)]
    host.tick()
    leader = host.answers[tokens[0][0]].leader
    from penstock.groups import Caller
    from tests.sim.group_host import sync_request

    lost = host.shard.sync_group(
        sync_request("g", leader, 1, {leader: b"x"}), Caller("c", "/h", 5), 999, host.now
    )
    assert lost.records  # and not replayed: the append failed
    assert host.state() == "CompletingRebalance"
    assert host.answers[host.sync(leader, 1, {leader: b"y"})].assignment == b"y"
    assert host.state() == "Stable"


@pytest.mark.promise(
    "groups",
    "A failed write does not stop a group; when a coordinator moves, all waiting requests get a response",
)
def test_resigning_answers_every_waiting_request() -> None:
    host = Host()
    join, _ = host.join_new()
    tokens = [host.join_new("h") for _ in range(2)]
    host.tick()
    leader = host.answers[tokens[0][0]].leader
    follower = next(m for _, m in tokens if m != leader)
    sync = host.sync(follower, 1, group="h")
    late, _ = host.join_new("k")
    replies = {reply.token: reply.response.error_code for reply in host.shard.resign(NotCoordinator())}  # type: ignore[union-attr]
    assert replies == {sync: NotCoordinator.code, late: NotCoordinator.code}


# listing, describing, deleting


@pytest.mark.promise(
    "groups", "Administrators can list (by state and type), describe, alter and delete groups"
)
def test_groups_are_listed_by_state_and_type() -> None:
    host = Host()
    host.stable_group("a", group="s")
    host.commit(5, group="simple")
    rows = {row.group_id: row for row in host.shard.list_groups([], [])}
    assert (rows["s"].group_state, rows["s"].group_type, rows["s"].protocol_type) == (
        "Stable",
        "classic",
        "consumer",
    )
    assert (rows["simple"].group_state, rows["simple"].protocol_type) == ("Empty", "")
    assert [row.group_id for row in host.shard.list_groups(["STABLE "], [])] == ["s"]
    assert [row.group_id for row in host.shard.list_groups(["empty"], ["Classic"])] == ["simple"]
    assert host.shard.list_groups([], ["consumer"]) == []


def test_a_stable_group_is_described_with_subscriptions_and_assignments() -> None:
    host = Host()
    ids, _ = host.stable_group("a", protocols={"range": b"subscription"})
    answer = host.ask("describe_groups", "g", 6)
    (member,) = answer.members
    assert (answer.group_state, answer.protocol_type, answer.protocol_data) == ("Stable", "consumer", "range")
    assert (member.member_metadata, member.member_assignment) == (b"subscription", ids["a"].encode())
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")


def test_an_unknown_group_is_dead_and_since_version_6_an_error() -> None:
    host = Host()
    assert host.ask("describe_groups", "x", 5).error_code == 0
    answer = host.ask("describe_groups", "x", 6)
    assert (answer.group_state, answer.error_code) == ("Dead", GroupIdNotFound.code)
    assert "x" in answer.error_message


@pytest.mark.promise(
    "groups", "Administrators can list (by state and type), describe, alter and delete groups"
)
def test_only_empty_groups_are_deleted_with_their_offsets() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    assert host.commit(7, member_id=ids["a"], generation=generation) == 0
    assert host.ask("delete_groups", "g").error_code == NonEmptyGroup.code
    assert host.ask("delete_groups", "x").error_code == GroupIdNotFound.code
    host.leave((ids["a"], None))
    assert host.ask("delete_groups", "g").error_code == 0
    assert host.committed() == -1
    assert host.state() == "Dead"
    host.crash()
    assert host.shard.groups == {}
    assert host.shard.offsets.by_group == {}


def test_the_leave_request_of_a_new_member_answers_its_waiting_join() -> None:
    host = Host(group_initial_rebalance_delay_ms=3000)
    token, member = host.join_new()
    assert host.leave((member, None)) == [0]
    assert host.answers[token].error_code == UnknownMemberId.code
    host.tick(3000)
    assert host.state() == "Empty"


def test_an_unknown_state_machine_event_is_a_message_not_a_crash() -> None:
    host = Host()
    answer = host.ask("leave_group", Message(group_id="", members=[]), 5)
    assert answer.error_code == InvalidGroupId.code
