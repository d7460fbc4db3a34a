"""The parts of consumer groups, each alone: assignors, reconciliation, patterns, records, classic bytes."""

from __future__ import annotations

import random
import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FencedMemberEpoch, InvalidRegularExpression, WireError
from penstock.groups.consumer import embedded, records
from penstock.groups.consumer.assignors import GroupSpec, MemberSpec, Partitions, assign_range, assign_uniform
from penstock.groups.consumer.member import ClassicMetadata, Member, MemberState
from penstock.groups.consumer.reconcile import reconcile
from penstock.groups.consumer.records import ResolvedRegex
from penstock.regex.matching import Regex

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def parts(**by_topic: list[int]) -> Partitions:
    ids = {"a": A, "b": B, "c": C}
    return {ids[name]: frozenset(numbers) for name, numbers in by_topic.items()}


def spec(members: dict[str, str | tuple[str, Partitions]], **counts: int) -> GroupSpec:
    """`members` has the topics of each, as letters, and what each was to have before."""
    ids = {"a": A, "b": B, "c": C}
    made = {}
    for name, wants in members.items():
        letters, target = (wants, {}) if isinstance(wants, str) else wants
        made[name] = MemberSpec(None, frozenset(ids[letter] for letter in letters), target)
    return GroupSpec(made, {ids[name]: count for name, count in counts.items()})


def loads(assignment: dict[str, Partitions]) -> dict[str, int]:
    return {name: sum(map(len, mine.values())) for name, mine in assignment.items()}


# assignors


@pytest.mark.promise(
    "consumer groups",
    "The `uniform` assignor distributes partitions evenly and moves no more than necessary; the `range` "
    "assignor gives contiguous ranges",
)
def test_range_gives_contiguous_ranges_and_co_partitions_topics_of_the_same_size() -> None:
    assignment = assign_range(spec({"m1": "ab", "m2": "ab"}, a=3, b=3))
    assert assignment == {"m1": parts(a=[0, 1], b=[0, 1]), "m2": parts(a=[2], b=[2])}


def test_range_orders_static_members_by_their_names_before_the_others() -> None:
    members = {
        "z": MemberSpec("i1", frozenset({A})),
        "a": MemberSpec(None, frozenset({A})),
        "b": MemberSpec("i0", frozenset({A})),
    }
    assert assign_range(GroupSpec(members, {A: 3})) == {
        "b": parts(a=[0]),
        "z": parts(a=[1]),
        "a": parts(a=[2]),
    }


@pytest.mark.promise(
    "consumer groups",
    "The `uniform` assignor distributes partitions evenly and moves no more than necessary; the `range` "
    "assignor gives contiguous ranges",
)
def test_uniform_moves_no_more_than_it_has_to_when_a_member_comes() -> None:
    before = assign_uniform(spec({"m1": "a", "m2": "a"}, a=6))
    after = assign_uniform(spec({"m1": ("a", before["m1"]), "m2": ("a", before["m2"]), "m3": "a"}, a=6))
    assert loads(after) == {"m1": 2, "m2": 2, "m3": 2}
    assert all(after[name][A] < before[name][A] for name in before)


def test_uniform_keeps_everything_in_place_when_nothing_has_changed() -> None:
    before = assign_uniform(spec({"m1": "ab", "m2": "ab", "m3": "ab"}, a=5, b=2))
    again = assign_uniform(spec({name: ("ab", mine) for name, mine in before.items()}, a=5, b=2))
    assert again == before


def test_uniform_levels_through_a_third_member_where_two_share_no_topic() -> None:
    # m1 can give only to m2, and m2 only to m3.
    members: dict[str, str | tuple[str, Partitions]] = {
        "m1": ("a", parts(a=[0, 1, 2, 3, 4])),
        "m2": ("ab", parts(b=[0, 1, 2, 3])),
        "m3": ("b", parts(b=[4, 5, 6])),
    }
    assert loads(assign_uniform(spec(members, a=5, b=7))) == {"m1": 4, "m2": 4, "m3": 4}


wants = st.dictionaries(
    st.text("mno", min_size=1, max_size=3), st.sets(st.sampled_from("abc")).map("".join), min_size=1
)


@pytest.mark.promise(
    "consumer groups",
    "The `uniform` assignor distributes partitions evenly and moves no more than necessary; the `range` "
    "assignor gives contiguous ranges",
)
@given(wants, wants, st.integers(0, 7), st.integers(0, 7), st.integers(1, 7))
def test_assignors_give_every_partition_to_one_of_its_subscribers_and_uniform_evenly(
    first: dict[str, str], then: dict[str, str], a: int, b: int, c: int
) -> None:
    before = assign_uniform(spec(dict(first), a=a, b=b, c=c))
    members: dict[str, str | tuple[str, Partitions]] = {
        name: (letters, before.get(name, {})) for name, letters in then.items()
    }
    group = spec(members, a=a, b=b, c=c)
    for assign in (assign_uniform, assign_range):
        assignment = assign(group)
        given_out = [(t, p) for mine in assignment.values() for t, ps in mine.items() for p in ps]
        wanted = {t for member in group.members.values() for t in member.topics}
        assert sorted(given_out) == sorted((t, p) for t in wanted for p in range(group.partition_counts[t]))
        assert all(mine.keys() <= group.members[name].topics for name, mine in assignment.items())
    count = loads(assign_uniform(group))
    uniform = assign_uniform(group)
    for giver in uniform:
        for taker, member in group.members.items():
            if uniform[giver].keys() & member.topics:
                assert count[giver] - count[taker] <= 1, "one that has two less could have had it"


@pytest.mark.promise(
    "consumer groups",
    "The `uniform` assignor distributes partitions evenly and moves no more than necessary; the `range` "
    "assignor gives contiguous ranges",
)
def test_uniform_levels_mixed_subscriptions_of_a_hundred_members() -> None:
    rng = random.Random(1)
    topics = [UUID(int=number) for number in range(10)]
    members = {
        f"m{number}": MemberSpec(None, frozenset(rng.sample(topics, rng.randint(1, 9))))
        for number in range(100)
    }
    group = GroupSpec(members, dict.fromkeys(topics, 100))
    assert set(loads(assign_uniform(group)).values()) == {10}


# reconciliation


def nobody(topic: UUID, partition: int) -> str | None:
    return None


def test_a_new_member_gets_at_once_what_nobody_has() -> None:
    led = reconcile(Member("m"), 3, parts(a=[0, 1]), nobody, {})
    assert (led.state, led.epoch, led.previous_epoch) == (MemberState.STABLE, 3, 0)
    assert led.assigned == parts(a=[0, 1])


def test_a_member_stays_in_its_epoch_until_it_no_longer_names_what_it_has_to_give_up() -> None:
    member = Member("m", epoch=3, previous_epoch=2, assigned=parts(a=[0, 1]))
    waiting = reconcile(member, 4, parts(a=[1, 2]), nobody, None)
    assert (waiting.state, waiting.epoch) == (MemberState.UNREVOKED_PARTITIONS, 3)
    assert (waiting.assigned, waiting.pending_revocation) == (parts(a=[1]), parts(a=[0]))
    assert reconcile(waiting, 4, parts(a=[1, 2]), nobody, None) is waiting
    assert reconcile(waiting, 4, parts(a=[1, 2]), nobody, parts(a=[0, 1])) is waiting
    led = reconcile(waiting, 4, parts(a=[1, 2]), nobody, parts(a=[1]))
    assert (led.state, led.epoch, led.assigned) == (MemberState.STABLE, 4, parts(a=[1, 2]))
    assert led.pending_revocation == {}


@pytest.mark.promise(
    "consumer groups",
    "A partition moves only after its owner has revoked it; a member that does not revoke it in "
    "time is fenced",
)
def test_a_member_gets_what_others_have_only_when_they_gave_it_up() -> None:
    held: dict[tuple[UUID, int], str] = {(A, 1): "other"}
    member = Member("m", epoch=3, assigned=parts(a=[0]))
    led = reconcile(member, 4, parts(a=[0, 1]), lambda t, p: held.get((t, p)), parts(a=[0]))
    assert (led.state, led.epoch, led.assigned) == (MemberState.UNRELEASED_PARTITIONS, 4, parts(a=[0]))
    assert reconcile(led, 4, parts(a=[0, 1]), lambda t, p: held.get((t, p)), None) is led
    held.clear()
    done = reconcile(led, 4, parts(a=[0, 1]), lambda t, p: held.get((t, p)), None)
    assert (done.state, done.assigned) == (MemberState.STABLE, parts(a=[0, 1]))


def test_a_member_in_a_state_of_a_newer_coordinator_has_to_rejoin() -> None:
    member = Member("m", epoch=3, state=MemberState.UNKNOWN, assigned=parts(a=[0]))
    with pytest.raises(FencedMemberEpoch):
        reconcile(member, 4, parts(a=[0]), nobody, parts(a=[0]))
    assert reconcile(member, 4, parts(a=[0]), nobody, {}).state is MemberState.STABLE


# patterns

PATTERNS = [
    "foo", "foo.*", "^foo.*$", "(a|b)+c", "a{2,3}", "a{2,}", "[a-c]+[^d]", r"\d+-\w*", "(?i)ABC.*", "x|y|",
    "(?:ab)*", "a?b+c*", "[.]", r"a\.b", "[-a]x", "[]a]b", "^(a|ab)(c|bcd)$", r"\bfo\b.*", "(?P<n>a)b",
    "a.{0,3}b", "", "(a*)*b", "((a|b)?c)+", r"\Aa.*\Z", "a{,2}", "(?s:a.b)", "((a)|b|)c", r"\x61.", "[^a]*?b",
]  # fmt: skip


@pytest.mark.promise(
    "consumer groups",
    "A pattern subscription follows topics that are created and deleted; it uses RE2 syntax and takes at "
    "most linear time",
)
@given(st.sampled_from(PATTERNS), st.text("abcdxyfo.-1A]{,2}", max_size=9))
def test_patterns_match_whole_names_as_they_do_elsewhere(pattern: str, name: str) -> None:
    ours = Regex(pattern.replace(r"\Z", r"\z"))
    assert ours.matches(name) == (re.fullmatch(pattern.replace("{,2}", r"\{,2\}"), name) is not None)


def test_patterns_know_what_re2_knows_beyond_python() -> None:
    assert Regex(r"[[:alpha:]]+-[[:^digit:]]").matches("ab-c")
    assert Regex(r"\Qa.b\E.*").matches("a.bc")
    assert not Regex(r"\Qa.b\E.*").matches("axbc")
    assert Regex("(?<name>a)b").matches("ab")
    assert Regex(r"\x{61}b").matches("ab")


@pytest.mark.promise(
    "consumer groups",
    "A pattern subscription follows topics that are created and deleted; it uses RE2 syntax and takes at "
    "most linear time",
)
@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "[a", "*a", "a**", "a+*", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", "a{1001}",
        "x{2,1}", r"\p{L}", "[b-a]", "a\\", "(?P<>a)", "((a{100}){100}){100}", "(" * 5000, "[[:foo:]]",
        r"\x{110000}", "(?P=n)", "(?#c)", "(?z)", r"\8",
    ],
)  # fmt: skip
def test_what_re2_refuses_is_an_invalid_regular_expression(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Regex(pattern)


@given(st.text(r"ab()[]{}*+?|\.^$-:,12P<>=!dwQE", max_size=12), st.text("ab12-", max_size=6))
def test_any_text_is_a_pattern_or_refused(pattern: str, name: str) -> None:
    try:
        Regex(pattern).matches(name)
    except InvalidRegularExpression:
        pass


@pytest.mark.promise(
    "consumer groups",
    "A pattern subscription follows topics that are created and deleted; it uses RE2 syntax and takes at "
    "most linear time",
)
def test_a_pattern_that_would_keep_backtracking_for_years_is_matched_at_once() -> None:
    assert not Regex("(a+)+(a|aa)*.*.*.*.*x").matches("a" * 249)


# records

MEMBER = Member(
    "m1", instance_id="i", rack_id=None, client_id="c", client_host="/h", topics=frozenset({"b", "a"}),
    regex="x.*", rebalance_timeout_ms=1000, server_assignor="range",
)  # fmt: skip


@pytest.mark.promise("consumer groups", "The group's records are byte for byte Kafka's")
def test_records_have_kafkas_bytes() -> None:
    assert records.group_record("g", 5, 0) == (b"\0\x03\0\x01g", b"\0\0\0\0\0\x05\0")
    assert records.group_record("g", 5, 1).value == b"\0\0\0\0\0\x05\x01\0\x08\0\0\0\0\0\0\0\x01"
    assert records.target_epoch_record("g", 5) == (b"\0\x06\0\x01g", b"\0\0\0\0\0\x05\0")
    assert records.member_record("g", MEMBER) == (
        b"\0\x05\0\x01g\0\x02m1",
        b"\0\0\x02i\0\x02c\x03/h\x03\x02a\x02b\x04x.*\0\0\x03\xe8\x06range\0",
    )
    assert records.target_record("g", "m1", parts(a=[2, 1])) == (
        b"\0\x07\0\x01g\0\x02m1",
        b"\0\0\x02" + A.bytes + b"\x03\0\0\0\x01\0\0\0\x02\0\0",
    )
    member = Member("m1", epoch=3, previous_epoch=2, state=MemberState.UNREVOKED_PARTITIONS,
                    assigned=parts(a=[0]), pending_revocation=parts(b=[1]))  # fmt: skip
    assert records.current_record("g", member) == (
        b"\0\x08\0\x01g\0\x02m1",
        b"\0\0\0\0\0\x03\0\0\0\x02\x01\x02" + A.bytes + b"\x02\0\0\0\0\0"
        b"\x02" + B.bytes + b"\x02\0\0\0\x01\0\0",
    )
    assert records.regex_record("g", "a.*", ResolvedRegex(frozenset({"a1"}), 7, 9)) == (
        b"\0\x10\0\x01g\0\x03a.*",
        b"\0\0\x02\x03a1\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\0",
    )


def test_the_metadata_of_a_classic_member_is_a_tagged_struct_that_may_be_null() -> None:
    classic = Member("m", classic=ClassicMetadata(500, (("range", b"\x01\x02"),)))
    value = records.member_record("g", classic).value
    assert value is not None
    assert value.endswith(b"\x01\x00\x11\x01\x00\x00\x01\xf4\x02\x06range\x03\x01\x02\x00\x00")
    assert records.read_member(Member("m"), value) == classic


def test_records_are_read_as_they_were_written() -> None:
    def value(record: tuple[bytes, bytes | None]) -> bytes:
        assert record[1] is not None
        return record[1]

    assert records.read_group(value(records.group_record("g", 5, -3))) == (5, -3)
    assert records.read_member(Member("m1"), value(records.member_record("g", MEMBER))) == MEMBER
    led = Member("m1", epoch=-2, previous_epoch=2, assigned=parts(a=[0], b=[3]))
    assert records.read_current(Member("m1"), value(records.current_record("g", led))) == led
    assert records.read_target(value(records.target_record("g", "m", parts(c=[5])))) == parts(c=[5])
    resolved = ResolvedRegex(frozenset({"x", "y"}), 1, 2)
    assert records.read_regex(value(records.regex_record("g", "r", resolved))) == resolved
    for kind in records.KEY_VERSIONS:
        named = kind in (records.MEMBER, records.CURRENT, records.TARGET_MEMBER, records.REGEX)
        key = records.tombstone(kind, "gruppe-ü", "m" if named else None).key
        assert records.decode_key(key) == (kind, "gruppe-ü", "m" if named else "")


def test_a_state_that_is_not_known_is_read_as_unknown() -> None:
    value = bytearray(records.current_record("g", Member("m")).value or b"")
    value[10] = 9
    assert records.read_current(Member("m"), bytes(value)).state is MemberState.UNKNOWN


# the embedded protocol


def test_subscriptions_are_read_in_every_version_and_as_far_as_known_in_newer_ones() -> None:
    topics = b"\0\0\0\x01\0\x01t"
    owned = b"\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x03"
    user_data = b"\0\0\0\x02xx"
    version_0 = embedded.read_subscription(b"\0\0" + topics + user_data)
    assert (version_0.topics, version_0.owned) == ({"t"}, {})
    version_1 = embedded.read_subscription(b"\0\x01" + topics + user_data + owned)
    assert version_1.owned == {"t": {0, 3}}
    version_3 = embedded.read_subscription(
        b"\0\x03" + topics + user_data + owned + b"\0\0\0\x07" + b"\0\x02r1"
    )
    assert (version_3.owned, version_3.rack_id) == ({"t": {0, 3}}, "r1")
    newer = embedded.read_subscription(
        b"\0\x09" + topics + user_data + owned + b"\0\0\0\x07" + b"\xff\xff" + b"more"
    )
    assert (newer.version, newer.rack_id) == (3, None)


def test_assignments_are_written_in_the_version_of_the_member() -> None:
    raw = embedded.write_assignment({"t": frozenset({1, 0})}, 2)
    assert raw == b"\0\x02\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x01\xff\xff\xff\xff"
    assert embedded.read_assignment(raw) == {"t": {0, 1}}
    assert embedded.read_assignment(b"") == {}


@pytest.mark.promise(
    "consumer groups", "Invalid requests and hostile bytes get Kafka's errors, and the group continues"
)
@given(st.binary(max_size=60))
def test_hostile_bytes_of_the_embedded_protocol_are_refused_or_read(raw: bytes) -> None:
    for read in (embedded.read_subscription, embedded.read_assignment):
        try:
            read(raw)
        except WireError:
            pass
