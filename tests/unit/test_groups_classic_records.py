"""The records of `__consumer_offsets`, byte for byte as Kafka writes them, in every version it reads."""

from __future__ import annotations

import struct

import pytest

from penstock.errors import WireError
from penstock.groups.classic import records as records_classic
from penstock.groups.classic.records import GroupMetadata, MemberMetadata
from penstock.groups.offsets import records as records_offsets


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
def test_the_key_of_an_offset() -> None:
    key = records_offsets.key_prefix("grp") + records_offsets.key_tail("topic", 7)
    assert key == bytes.fromhex("0001 0003 677270 0005 746f706963 00000007")
    assert records_offsets.split_key(key) == ("grp", records_offsets.key_tail("topic", 7))
    assert records_offsets.read_tail(key[7:]) == ("topic", 7)


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
def test_an_offset_is_written_in_version_3() -> None:
    value = records_offsets.encode_value(258, 5, "md", 1_700_000_000_000)
    assert value == bytes.fromhex("0003 0000000000000102 00000005 0002 6d64 0000018bcfe56800")
    assert records_offsets.decode_value(value) == (258, 5, "md", 1_700_000_000_000, -1)
    assert records_offsets.committed(value) == 258


def test_an_offset_with_its_own_time_to_live_is_written_in_version_1() -> None:
    value = records_offsets.encode_value(258, 5, "md", 1000, 2000)
    assert value == bytes.fromhex("0001 0000000000000102 0002 6d64 00000000000003e8 00000000000007d0")
    assert records_offsets.decode_value(value) == (258, -1, "md", 1000, 2000)


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
@pytest.mark.parametrize("version", [0, 2])
def test_older_offsets_are_read(version: int) -> None:
    value = struct.pack(">hq", version, 9) + text("x") + struct.pack(">q", 77)
    assert records_offsets.decode_value(value) == (9, -1, "x", 77, -1)


def test_flexible_offsets_are_read_with_tags() -> None:
    topic_id = b"\x01\x00\x10" + bytes(range(16))
    value = struct.pack(">hqi", 4, 9, 3) + b"\x02x" + struct.pack(">q", 77)
    assert records_offsets.decode_value(value + b"\x00") == (9, 3, "x", 77, -1)
    assert records_offsets.decode_value(value + topic_id) == (9, 3, "x", 77, -1)


def test_the_key_of_a_group() -> None:
    assert records_classic.encode_key("grp") == bytes.fromhex("0002 0003 677270")
    assert records_classic.decode_key(records_classic.encode_key("größe")) == "größe"


MEMBER = MemberMetadata("m", "i", "c", "/h", 3000, 1000, b"sub", b"asg")
GROUP = GroupMetadata("consumer", 4, "range", "m", 99, (MEMBER,))


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
def test_a_group_is_written_in_version_3() -> None:
    expected = bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000063 00000001"
        "0001 6d 0001 69 0001 63 0002 2f68 00000bb8 000003e8 00000003 737562 00000003 617367"
    )
    assert records_classic.encode_value(GROUP) == expected
    assert records_classic.decode_value(expected) == GROUP


def test_an_empty_group_has_no_protocol_and_no_leader() -> None:
    empty = GroupMetadata("", 0, None, None, 5, ())
    value = records_classic.encode_value(empty)
    assert value == bytes.fromhex("0003 0000 00000000 ffff ffff 0000000000000005 00000000")
    assert records_classic.decode_value(value) == empty


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_groups_are_read(version: int) -> None:
    value = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 4) + text("range") + text("m")
    if version >= 2:
        value += struct.pack(">q", 99)
    value += struct.pack(">i", 1) + text("m") + text("c") + text("/h")
    if version >= 1:
        value += struct.pack(">i", 3000)
    value += struct.pack(">i", 1000) + struct.pack(">i", 3) + b"sub" + struct.pack(">i", 3) + b"asg"
    expected = MEMBER._replace(instance_id=None, rebalance_timeout_ms=3000 if version >= 1 else -1)
    assert records_classic.decode_value(value) == GROUP._replace(
        members=(expected,), state_timestamp=99 if version >= 2 else -1
    )


def test_flexible_groups_are_read() -> None:
    value = (
        b"\x00\x04\x09consumer\x00\x00\x00\x04\x06range\x02m" + struct.pack(">q", 99) + b"\x02"
        b"\x02m\x02i\x02c\x03/h" + struct.pack(">ii", 3000, 1000) + b"\x04sub\x04asg\x00" + b"\x00"
    )  # fmt: skip
    assert records_classic.decode_value(value) == GROUP


@pytest.mark.promise(
    "groups", "The records of `__consumer_offsets` are byte for byte Kafka's; older versions can be read, too"
)
@pytest.mark.parametrize("value", [b"\x00\x05", b"\xff\xff" + bytes(40)])
def test_unknown_versions_are_refused(value: bytes) -> None:
    with pytest.raises(WireError):
        records_classic.decode_value(value)
    with pytest.raises(WireError):
        records_offsets.decode_value(value + bytes(20))


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x01\x7f\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x01\x00\x00\x00\x01\x00\x02\xff\xfe",
    ],
)
def test_hostile_subscriptions_name_no_topics(raw: bytes) -> None:
    assert records_classic.subscribed_topics([raw]) is None


def test_topics_are_read_from_any_version_of_a_subscription() -> None:
    raw = b"\x00\x63" + struct.pack(">i", 2) + text("a") + text("b") + b"whatever comes later"
    assert records_classic.subscribed_topics([raw, raw]) == {"a", "b"}
    assert records_classic.subscribed_topics([]) == frozenset()
