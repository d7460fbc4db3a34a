"""pgoutput on bytes that a real PostgreSQL sent, and on hostile bytes."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.connectors.cdc.column_types import UNCHANGED
from penstock.connect.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    PgOutputDecoder,
    PgOutputError,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from tests.connect.postgres import record_pgoutput

if TYPE_CHECKING:
    from tests.connect.postgres.server import Database

PLAIN = record_pgoutput.load("plain")
STREAMED = record_pgoutput.load("streamed")
FIRST_USER_OID = 16384


def decoded(recorded: Iterable[bytes]) -> list[Message]:
    decoder = PgOutputDecoder()
    return [decoder.decode(data) for data in recorded]


def of(kind: type, messages: list[Message]) -> list[Message]:
    return [message for message in messages if isinstance(message, kind)]


def shape(messages: list[Message]) -> list[str]:
    """Without what differs between recordings: LSNs, times, ids of transactions and of user objects."""
    varying = r"(final_lsn|commit_lsn|end_lsn|lsn|commit_micros|xid|subtransaction_xid)=\d+"
    texts = [re.sub(varying, r"\1=…", repr(message)) for message in messages]
    oids = r"\b(oid|type_oid|relation|relations)=(\(?)(\d+(?:, \d+)*)"

    def without_user_oids(found: re.Match[str]) -> str:
        numbers = ["user" if int(each) >= FIRST_USER_OID else each for each in found[3].split(", ")]
        return f"{found[1]}={found[2]}{', '.join(numbers)}"

    return [re.sub(oids, without_user_oids, text) for text in texts]


def test_each_transaction_is_framed_by_begin_and_commit() -> None:
    messages = decoded(PLAIN)
    begins, commits = of(Begin, messages), of(Commit, messages)
    assert len(begins) == len(commits) == 12
    for begin, commit in zip(begins, commits, strict=True):
        assert isinstance(begin, Begin) and isinstance(commit, Commit)
        assert begin.final_lsn == commit.commit_lsn < commit.end_lsn
        assert begin.commit_micros == commit.commit_micros
        assert 1_700_000_000_000_000 < begin.commit_micros < 4_000_000_000_000_000


def test_a_relation_has_its_columns_types_and_key() -> None:
    relations = [message for message in decoded(PLAIN) if isinstance(message, Relation)]
    first = relations[0]
    assert (first.schema, first.name, first.replica_identity) == ("public", "people", "d")
    assert [(column.name, column.is_key) for column in first.columns] == [
        ("id", True), ("name", False), ("feeling", False), ("big", False),
    ]  # fmt: skip
    assert (first.columns[0].type_oid, first.columns[1].type_oid, first.columns[1].type_modifier) == (
        23,
        1043,
        24,
    )
    [kind] = {message.oid for message in decoded(PLAIN) if isinstance(message, Type)}
    assert first.columns[2].type_oid == kind
    whole = next(relation for relation in relations if relation.name == "whole")
    assert whole.replica_identity == "f" and all(column.is_key for column in whole.columns)
    later = [relation for relation in relations if relation.name == "people"][1]
    assert [column.name for column in later.columns] == ["id", "name", "feeling", "big", "age"]


@pytest.mark.promise(
    "connect",
    "PostgreSQL: pgoutput messages are decoded as a real server sends them; hostile bytes are rejected "
    "and have no other effect",
)
def test_rows_have_text_nulls_and_values_that_an_update_did_not_change() -> None:
    messages = decoded(PLAIN)
    assert [message.new for message in messages if isinstance(message, Insert)] == [
        ("1", "Zoë", "happy", "x" * 3000),
        ("2", None, "sad", "short"),
        ("3", "", None, None),
        ("1", "10.50"),
        ("4", "new column", "ok", None, "44"),
        ("5", "from elsewhere", None, None, "7"),
    ]
    updates = [message for message in messages if isinstance(message, Update)]
    assert [(message.old, message.old_is_key, message.new) for message in updates] == [
        (None, False, ("1", "Ann", "happy", UNCHANGED)),
        (("2", None, None, None), True, ("20", None, "sad", "short")),
        (("1", "10.50"), False, ("1", "11.00")),
    ]
    deletes = [message for message in messages if isinstance(message, Delete)]
    assert [(message.old, message.old_is_key) for message in deletes] == [
        (("3", None, None, None), True),
        (("1", "11.00"), False),
    ]


def test_truncates_origins_and_logical_messages() -> None:
    messages = decoded(PLAIN)
    oids = {message.name: message.oid for message in messages if isinstance(message, Relation)}
    assert of(Truncate, messages) == [
        Truncate((oids["people"], oids["whole"]), cascade=True, restart_identity=True)
    ]
    assert [message.name for message in messages if isinstance(message, Origin)] == ["elsewhere"]
    assert [
        (message.transactional, message.prefix, message.content)
        for message in messages
        if isinstance(message, LogicalMessage)
    ] == [(True, "within", b"in a transaction"), (False, "outside", b"\x00\xff")]


def test_transactions_that_are_sent_while_they_run() -> None:
    messages = decoded(STREAMED)
    starts = [message for message in messages if isinstance(message, StreamStart)]
    assert starts[0].first_segment and len(of(StreamStop, messages)) == len(starts)
    [commit] = of(StreamCommit, messages)
    assert isinstance(commit, StreamCommit) and commit.commit_lsn < commit.end_lsn
    aborted = {message.subtransaction_xid for message in messages if isinstance(message, StreamAbort)}
    kept = [
        message.new[0] for message in messages if isinstance(message, Insert) and message.xid not in aborted
    ]
    assert kept == [str(number) for number in range(1, 701)] + ["9999"]
    [deleted] = [message for message in messages if isinstance(message, Delete)]
    assert deleted.old == ("1",) and deleted.xid not in aborted
    assert [message.xid for message in messages if isinstance(message, Insert)][-1] is None


@pytest.mark.promise(
    "connect",
    "PostgreSQL: pgoutput messages are decoded as a real server sends them; hostile bytes are rejected "
    "and have no other effect",
)
@pytest.mark.parametrize("name", ["plain", "streamed"])
def test_this_machines_postgresql_sends_what_was_recorded(name: str, database: Database) -> None:
    statements, options = record_pgoutput.RECORDINGS[name]
    if name == "plain":
        database.execute("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin")
    now = decoded(record_pgoutput.record(database, statements, options))
    if name == "plain":
        database.execute("SELECT pg_replication_origin_drop('elsewhere')")
        assert shape(now) == shape(decoded(record_pgoutput.load(name)))
    else:  # where a stream is cut, the server decides
        assert {type(message) for message in now} == {type(message) for message in decoded(STREAMED)}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"?", "'\\?' is not known"),
        (b"\x00", "0x00 is not known"),
        (b"B\x00", "'B' of 2 bytes is cut short"),
        (b"I\x00\x00\x00\x01X\x00\x00", "marked 'X' where 'N'"),
        (b"I\x00\x00\x00\x01N\x00\x01z", "kind 0x7a"),
        (b"I\x00\x00\x00\x01N\x00\x01t\xff\xff\xff\xffab", "cut short"),
        (b"I\x00\x00\x00\x01N\x00\x01t\x00\x00\x00\x01\xff", "not UTF-8"),
        (b"I\x00\x00\x00\x01N\x00\x00more", "ends after 8 bytes, and 12 were sent"),
        (b"T\xff\xff\xff\xff\x00", "cut short"),
        (b"E", "did not begin"),
    ],
)
def test_bytes_that_are_no_message_are_named(data: bytes, words: str) -> None:
    with pytest.raises(PgOutputError, match=words):
        PgOutputDecoder().decode(data)


@pytest.mark.promise(
    "connect",
    "PostgreSQL: pgoutput messages are decoded as a real server sends them; hostile bytes are rejected "
    "and have no other effect",
)
def test_every_cut_of_every_message_is_refused() -> None:
    for recorded in (PLAIN, STREAMED[:20]):
        decoder = PgOutputDecoder()
        for data in recorded:
            for end in range(len(data)):
                if end < 100 or end > len(data) - 100:
                    with pytest.raises(PgOutputError):
                        decoder.decode(data[:end])
            decoder.decode(data)


@pytest.mark.promise(
    "connect",
    "PostgreSQL: pgoutput messages are decoded as a real server sends them; hostile bytes are rejected "
    "and have no other effect",
)
@pytest.mark.fuzz
@settings(max_examples=500)
@given(seed=st.integers(0, 2**32), streamed=st.booleans())
def test_changed_bytes_are_decoded_or_refused(seed: int, streamed: bool) -> None:
    rng = random.Random(seed)
    decoder = PgOutputDecoder()
    for data in STREAMED[:30] if streamed else PLAIN:
        hostile = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(hostile))
            match rng.randrange(3):
                case 0:
                    hostile[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                case 1:
                    hostile[at : at + rng.randint(1, 8)] = b""
                    hostile = hostile or bytearray(b"I")
                case 2:
                    hostile[at:at] = rng.randbytes(rng.randint(1, 8))
        try:
            decoder.decode(bytes(hostile))
        except PgOutputError:
            pass


@pytest.mark.fuzz
@settings(max_examples=500)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        PgOutputDecoder().decode(data)
    except PgOutputError:
        pass


def test_a_small_message_cannot_ask_for_much_memory() -> None:
    hostile = [
        b"T\x7f\xff\xff\xff\x00",
        b"M\x00" + bytes(8) + b"p\x00\x7f\xff\xff\xff",
        b"R" + bytes(4) + b"s\x00t\x00d\xff\xff",
        b"I" + bytes(4) + b"N\xff\xffnn",
    ]
    tracemalloc.start()
    try:
        for data in hostile:
            with pytest.raises(PgOutputError):
                PgOutputDecoder().decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
