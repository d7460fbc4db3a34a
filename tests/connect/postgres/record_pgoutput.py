"""Records the fixtures of test_pgoutput.py from a real PostgreSQL:

python -m tests.connect.postgres.record_pgoutput

Each file is gzip of messages, each with its length in four bytes before it.
"""

from __future__ import annotations

import gzip
import struct
import time
from pathlib import Path

import psycopg2.extras

from tests.connect.postgres.server import Database, PostgresServer

FIXTURES = Path(__file__).parent / "recorded"

PLAIN = [
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TABLE people (id int PRIMARY KEY, name varchar(20), feeling mood, big text)",
    "ALTER TABLE people ALTER COLUMN big SET STORAGE EXTERNAL",
    "CREATE TABLE whole (a int, b numeric(6,2))",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "INSERT INTO people VALUES (1, 'Zoë', 'happy', repeat('x', 3000))",
    "INSERT INTO people VALUES (2, NULL, 'sad', 'short'), (3, '', NULL, NULL)",
    "UPDATE people SET name = 'Ann' WHERE id = 1",
    "UPDATE people SET id = 20 WHERE id = 2",
    "DELETE FROM people WHERE id = 3",
    "INSERT INTO whole VALUES (1, 10.50)",
    "UPDATE whole SET b = 11 WHERE a = 1",
    "DELETE FROM whole",
    "ALTER TABLE people ADD COLUMN age smallint DEFAULT 7",
    "INSERT INTO people VALUES (4, 'new column', 'ok', NULL, 44)",
    "TRUNCATE people, whole RESTART IDENTITY CASCADE",
    "SELECT pg_logical_emit_message(true, 'within', 'in a transaction')",
    "SELECT pg_logical_emit_message(false, 'outside', '\\x00ff'::bytea)",
    "SELECT pg_replication_origin_create('elsewhere')",
    "SELECT pg_replication_origin_session_setup('elsewhere')",
    "INSERT INTO people (id, name) VALUES (5, 'from elsewhere')",
]
STREAMED = [
    "CREATE TABLE many (id int PRIMARY KEY)",
    # Past logical_decoding_work_mem: sent before the commit. A part is rolled back.
    "BEGIN; INSERT INTO many SELECT generate_series(1, 700); SAVEPOINT s;"
    "INSERT INTO many SELECT generate_series(701, 1400); ROLLBACK TO s;"
    "DELETE FROM many WHERE id = 1; COMMIT",
    "BEGIN; INSERT INTO many SELECT generate_series(2001, 2700); ROLLBACK",
    "INSERT INTO many VALUES (9999)",
]

RECORDINGS = {
    "plain": (PLAIN, {"proto_version": "1", "messages": "true"}),
    "streamed": (STREAMED, {"proto_version": "2", "streaming": "true"}),
}


def record(database: Database, statements: list[str], options: dict[str, str]) -> list[bytes]:
    database.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    replication = database.connect(connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = replication.cursor()
    cursor.create_replication_slot("recorder", output_plugin="pgoutput")
    database.execute(*statements)
    [(end,)] = database.query("SELECT pg_current_wal_insert_lsn() - '0/0'")
    cursor.start_replication("recorder", options={"publication_names": "everything", **options}, decode=False)
    messages = []
    while True:
        message = cursor.read_message()
        if message is not None:
            messages.append(message.payload)
        elif cursor.wal_end >= end:
            break
        else:
            time.sleep(0.05)
            cursor.send_feedback(reply=True)
    cursor.close()
    replication.close()
    return messages


def load(name: str) -> list[bytes]:
    data = gzip.decompress((FIXTURES / f"{name}.gz").read_bytes())
    messages, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        messages.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return messages


def save(name: str, messages: list[bytes]) -> None:
    FIXTURES.mkdir(exist_ok=True)
    data = b"".join(struct.pack(">I", len(message)) + message for message in messages)
    (FIXTURES / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
    print(f"{name}: {len(messages)} messages, {len(data)} bytes")


def main() -> None:
    server = PostgresServer()
    try:
        server.start()
        for name, (statements, options) in RECORDINGS.items():
            database = server.create_database(name)
            save(name, record(database, statements, options))
            database.drop()
    finally:
        server.close()


if __name__ == "__main__":
    main()
