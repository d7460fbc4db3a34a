"""`__transaction_state` byte by byte, as Kafka writes it, and hostile bytes."""

from __future__ import annotations

import pytest

from penstock.errors import WireError
from penstock.transactions.records import decode_key, decode_value, encode_key, encode_value
from penstock.transactions.state import State, Transaction

ONGOING = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({("b", 1), ("a", 0), ("a", 2)}),
    last_update_ms=1_700_000_000_001,
    start_ms=1_700_000_000_000,
    client_version=2,
)


def test_a_key_has_version_0_and_the_id() -> None:
    assert encode_key("pay-ü") == bytes.fromhex("00000006") + "pay-ü".encode()
    assert decode_key(encode_key("pay-ü")) == "pay-ü"


def test_a_key_of_an_unknown_version_is_passed_over() -> None:
    assert decode_key(b"\0\1\0\1x") is None
    assert decode_key(b"") is None


@pytest.mark.promise(
    "transactions", "The records of `__transaction_state` are byte for byte Kafka's, and Kafka reads them"
)
def test_the_bytes_of_a_value_are_kafkas() -> None:
    expected = (
        "0001"  # version
        "0000000000000007" "0003" "0000ea60" "01"  # producer id, epoch, timeout, Ongoing
        "03"  # two topics
        "0261" "03" "00000000" "00000002" "00"  # a: 0, 2
        "0262" "02" "00000001" "00"  # b: 1
        "0000018bcfe56801" "0000018bcfe56800"  # last update, start
        "01" "02" "02" "0002"  # one tagged field: tag 2, two bytes, client's transaction version 2
    )  # fmt: skip
    assert encode_value(ONGOING).hex() == expected
    assert decode_value(bytes.fromhex(expected)) == ONGOING


def test_an_empty_transaction_has_null_partitions_and_its_ids_are_tagged() -> None:
    empty = Transaction(9, 0, 1_000, last_update_ms=5, previous_producer_id=8, next_producer_id=10)
    expected = (
        "0001" "0000000000000009" "0000" "000003e8" "00"
        "00"  # null
        "0000000000000005" "ffffffffffffffff"
        "02" "0008" "0000000000000008" "0108" "000000000000000a"
    )  # fmt: skip
    assert encode_value(empty).hex() == expected
    assert decode_value(bytes.fromhex(expected)) == empty


@pytest.mark.promise(
    "transactions", "The records of `__transaction_state` are byte for byte Kafka's, and Kafka reads them"
)
def test_version_0_of_an_older_kafka_is_read() -> None:
    value = bytes.fromhex(
        "0000" "0000000000000007" "0003" "0000ea60" "04"
        "00000001" "000161" "00000002" "00000000" "00000002"
        "0000000000000005" "0000000000000004"
    )  # fmt: skip
    read = decode_value(value)
    assert (read.state, read.partitions) == (State.COMPLETE_COMMIT, {("a", 0), ("a", 2)})
    null = value[:17] + b"\xff\xff\xff\xff" + value[-16:]
    assert decode_value(null).partitions == frozenset()


def test_tagged_fields_of_a_later_kafka_are_passed_over() -> None:
    value = bytearray(encode_value(ONGOING))
    assert value[-5] == 1
    value[-5] = 2
    value += b"\x63\x03abc"
    assert decode_value(bytes(value)) == ONGOING


@pytest.mark.promise("transactions", "Invalid requests get Kafka's errors")
@pytest.mark.parametrize("cut", range(len(encode_value(ONGOING))))
def test_a_value_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(WireError):
        decode_value(encode_value(ONGOING)[:cut])


def test_what_cannot_be_is_refused() -> None:
    value = bytearray(encode_value(ONGOING))
    value[16] = 99  # the state
    with pytest.raises(WireError, match="state 99"):
        decode_value(bytes(value))
    with pytest.raises(WireError, match="version 5"):
        decode_value(b"\0\5" + bytes(value[2:]))
