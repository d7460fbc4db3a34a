"""What one client asks for does not stop others: lengths, timers that fail, costly patterns, large groups."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.coordinator import Outcome, Reply
from penstock.errors import (
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
)
from penstock.groups.consumer import levelling
from penstock.groups.consumer.assignors import GroupSpec, MemberSpec, assign_uniform
from penstock.groups.consumer.regex.patterns import Patterns
from penstock.groups.timers import Timer, Timers
from penstock.regex import matching as regex
from penstock.regex.matching import Regex, Work
from penstock.wire.message import Message
from tests.sim.group_host import Host, image, join_request
from tests.unit.groups_consumer_host import ConsumerHost

TOO_LONG = "x" * 40_000  # requests since JoinGroup 6 can carry it, records cannot


# lengths


@pytest.mark.promise(
    "hostile input",
    "Requests of one group cannot keep other groups from getting responses: lengths, timers, patterns "
    "and assignments are limited",
)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": TOO_LONG}, InconsistentGroupProtocol.code),
        ({"protocols": {"range": b"", TOO_LONG: b""}}, InconsistentGroupProtocol.code),
        ({"protocols": {"ж" * 20_000: b""}}, InconsistentGroupProtocol.code),
        ({"instance": TOO_LONG}, InvalidRequest.code),
        ({"member_id": TOO_LONG}, InvalidRequest.code),
    ],
    ids=["protocol type", "protocol", "protocol in bytes", "instance id", "member id"],
)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_join_with_a_name_that_no_record_can_hold_is_refused(
    kind: str, fields: dict[str, Any], code: int
) -> None:
    host = ConsumerHost({"t": 4})
    if kind == "consumer":
        host.heartbeat("m1", 0, topics=["t"])
    before = len(host.log)
    assert host.ask("join_group", join_request("g", **fields)).error_code == code
    assert len(host.log) == before


@pytest.mark.parametrize("version", [3, 5, 9])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_client_id_that_makes_too_long_a_member_id_is_refused(kind: str, version: int) -> None:
    host = ConsumerHost({"t": 4})
    if kind == "consumer":
        host.heartbeat("m1", 0, topics=["t"])
    answer = host.ask("join_group", join_request("g"), version, client_id="c" * 32_760)
    assert (answer.error_code, answer.member_id) == (InvalidRequest.code, "")


@pytest.mark.parametrize("field", ["instance", "regex"])
def test_a_heartbeat_with_a_name_that_no_record_can_hold_is_refused(field: str) -> None:
    ConsumerHost({"t": 4}).refused(InvalidRequest, "m1", 0, topics=["t"], **{field: TOO_LONG})


def test_the_offset_of_a_topic_whose_name_is_too_long_is_none_and_the_others_are_told() -> None:
    host = Host()
    host.commit(7)
    topics = [Message(name=TOO_LONG, partition_indexes=[0]), Message(name="t", partition_indexes=[0])]
    request = Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)
    answer = host.ask("offset_fetch", request, 9)
    found = [partition for topic in answer.topics for partition in topic.partitions]
    assert answer.error_code == 0
    assert [(one.committed_offset, one.error_code) for one in found] == [(-1, 0), (7, 0)]


# timers


@pytest.mark.promise(
    "hostile input",
    "Requests of one group cannot keep other groups from getting responses: lengths, timers, patterns "
    "and assignments are limited",
)
def test_a_timer_that_fails_takes_nothing_with_it_that_others_decided() -> None:
    timers, out = Timers(), Outcome()
    tried = []

    def good(token: str, out: Outcome, now_ms: int) -> None:
        out.replies.append(Reply(token, Message()))

    def bad(out: Outcome, now_ms: int) -> None:
        tried.append(now_ms)
        out.replies.append(Reply("its own", Message()))
        raise ZeroDivisionError

    for at, timer in enumerate((Timer(good, "before"), Timer(bad), Timer(good, "after"))):
        timers.set(timer, at)
    timers.fire(5, out)
    answers = dict(out.replies)
    assert answers.keys() == {"before", "its own", "after"}
    assert isinstance(answers["its own"], CoordinatorNotAvailable)
    again = timers.next_deadline()
    assert again is not None
    timers.fire(again, out)
    assert tried == [5, again]


def test_members_of_other_groups_are_answered_where_a_group_cannot_write_its_record() -> None:
    host = Host(group_initial_rebalance_delay_ms=2_000)
    ids, _ = host.stable_group("a", group="broken", session_ms=6_000)
    host.shard.groups["broken"].protocol_type = TOO_LONG  # type: ignore[attr-defined]
    host.tick(3_000)
    token, _ = host.join_new("victim")
    host.now += 10_000  # the session of the one has ended and the delay of the other is over: one tick
    host.apply(host.shard.on_time(host.now))
    assert host.answers[token].error_code == 0
    assert host.heartbeat(ids["a"], 1, "broken") != 0


# patterns


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    found: list[str] = []
    matches = Regex.matches

    def counted(self: Regex, text: str, work: Work | None = None) -> bool:
        found.append(text)
        return matches(self, text, work)

    monkeypatch.setattr(Regex, "matches", counted)
    yield found


@pytest.mark.parametrize(
    "pattern",
    ["(.?){1000}(.?){1000}(.?){1000}", "(" + "|" * 400 + "){1000}", "((a{9}){99}){99}", "{" * 32_000],
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    ConsumerHost({"t": 4}).refused(InvalidRegularExpression, "m1", 0, regex=pattern)


@pytest.mark.promise(
    "hostile input",
    "Requests of one group cannot keep other groups from getting responses: lengths, timers, patterns "
    "and assignments are limited",
)
@pytest.mark.parametrize("pattern", ["(.?){990}", "([a-m]?[^a]?[^c]?){300}", ".*.{0,800}q.{0,800}z"])
def test_the_work_for_a_name_is_bounded_whatever_the_pattern(pattern: str) -> None:
    rng = random.Random(1)
    name = "".join(rng.choices(string.ascii_lowercase, k=249))
    work = Work(1)
    Regex(pattern).matches(name, work)
    assert work.left > -regex._MOST_OVERWORK


def test_a_text_that_is_longer_than_any_topic_is_broken_off_where_it_costs_too_much() -> None:
    text = "".join(random.Random(1).choices("ac", k=32_000))
    with pytest.raises(InvalidRegularExpression):
        Regex(".*a.{900}").matches(text)


def test_a_name_is_matched_once_however_often_other_topics_change(looked_at: list[str]) -> None:
    patterns = Patterns()
    first = patterns.matching("a.*", image({"a1": 1, "b1": 1}), frozenset(), Work())
    then = patterns.matching("a.*", image({"a1": 1, "b1": 1, "a2": 1}), first, Work())
    assert (first, then) == ({"a1"}, {"a1", "a2"})
    assert sorted(looked_at) == ["a1", "a2", "b1"]
    assert patterns.matching("a.*", image({"a2": 1}), then, Work()) == {"a2"}


def test_what_is_too_much_for_one_heartbeat_is_matched_in_the_next(
    looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Work.__init__, "__defaults__", (1,))
    host = ConsumerHost({"a1": 1, "a2": 1, "b1": 1})
    epoch = host.heartbeat("m1", 0, regex="a.*").member_epoch
    assert len(looked_at) == 0
    for _ in range(5):
        epoch = host.heartbeat("m1", epoch).member_epoch
    assert len(looked_at) == 3
    assert sorted(host.named(host.group().members["m1"].assigned)) == ["a1", "a2"]


def test_a_restart_takes_no_topic_from_a_group_whose_pattern_is_not_resolved_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = ConsumerHost({"a1": 1, "a2": 1, "b1": 1})
    host.settle("m1", regex="a.*")
    epoch = host.heartbeat("m1", 2, owned={"a1": [0], "a2": [0]}).member_epoch
    monkeypatch.setattr(Work.__init__, "__defaults__", (1,))
    host.crash()
    for _ in range(4):
        assert host.heartbeat("m1", epoch).member_epoch == epoch
    assert sorted(host.named(host.group().members["m1"].assigned)) == ["a1", "a2"]


def test_a_pattern_that_nobody_has_any_more_is_forgotten() -> None:
    host = ConsumerHost({"a1": 1})
    for number in range(5):
        host.settle("m1", regex=f"a{number}*")
        host.heartbeat("m1", -1)
    assert not host.shard.consumer.patterns._resolved
    assert not host.group().regexes


# assignments


@pytest.mark.promise(
    "hostile input",
    "Requests of one group cannot keep other groups from getting responses: lengths, timers, patterns "
    "and assignments are limited",
)
def test_mixed_subscriptions_to_very_many_partitions_are_levelled(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = levelling.Levels._search

    def counted(self: levelling.Levels, giver: int, stuck: set[int]) -> Any:
        searched.append(giver)
        return search(self, giver, stuck)

    monkeypatch.setattr(levelling.Levels, "_search", counted)
    topics = [UUID(int=number) for number in range(3)]
    counts = dict.fromkeys(topics, 5_000)
    old = {f"m{i}": MemberSpec(None, frozenset(topics[:2] if i % 2 else topics[1:])) for i in range(10)}
    before = assign_uniform(GroupSpec(old, counts))
    members = {name: MemberSpec(None, member.topics, before[name]) for name, member in old.items()}
    members |= {f"n{i}": MemberSpec(None, frozenset(topics[:1])) for i in range(10)}
    after = assign_uniform(GroupSpec(members, counts))
    loads = {name: sum(map(len, mine.values())) for name, mine in after.items()}
    assert {loads[f"m{i}"] for i in range(10)} == {1_000}
    assert {loads[f"n{i}"] for i in range(10)} == {500}
    moved = sum(
        len(partitions - after[name].get(topic, frozenset()))
        for name, mine in before.items()
        for topic, partitions in mine.items()
    )
    assert moved <= 7_500  # 5,000 have to go to the new ones; those of m1, m3.. are made up for by m0, m2..
    assert len(searched) < 200, "chains are the exception: most is given directly"


@pytest.mark.parametrize("seed", range(60))
def test_no_chain_of_members_is_left_that_would_make_shares_more_even(seed: int) -> None:
    rng = random.Random(seed)
    topics = [UUID(int=number) for number in range(rng.randint(2, 8))]
    counts = {topic: rng.randint(1, 12) for topic in topics}

    def some() -> frozenset[UUID]:
        return frozenset(rng.sample(topics, rng.randint(1, min(3, len(topics)))))

    first = {f"m{i}": MemberSpec(None, some()) for i in range(rng.randint(2, 12))}
    before = assign_uniform(GroupSpec(first, counts))
    then = {name: MemberSpec(None, some(), before[name]) for name in first if rng.random() < 0.8}
    then |= {f"n{i}": MemberSpec(None, some()) for i in range(rng.randint(1, 4))}
    after = assign_uniform(GroupSpec(then, counts))
    loads = {name: sum(map(len, mine.values())) for name, mine in after.items()}
    for giver in after:
        reached = {giver}
        queue = [giver]
        for member in queue:
            for name, spec in then.items():
                if name not in reached and spec.topics & after[member].keys():
                    reached.add(name)
                    queue.append(name)
        assert loads[giver] - min(loads[name] for name in reached) < 2
