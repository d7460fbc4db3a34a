"""Exactly once, into a database: results and offsets are written in one transaction of the database.

The database says where to go on, whatever the group has committed; so results and offsets cannot come apart.
A record that another process has done in the meantime is left alone: the offset in the database only grows.
"""

from __future__ import annotations

import sqlite3

from confluent_kafka import Message, TopicPartition
from reading import Input, connect, options, say
from results import open_results

TABLES = (
    "CREATE TABLE IF NOT EXISTS results (id TEXT, value TEXT)",
    "CREATE TABLE IF NOT EXISTS progress (topic TEXT, part INTEGER, next_offset INTEGER NOT NULL,"
    " PRIMARY KEY (topic, part))",
)
ADVANCE = (
    "INSERT INTO progress VALUES (?, ?, ?) ON CONFLICT (topic, part)"
    " DO UPDATE SET next_offset = excluded.next_offset WHERE next_offset < excluded.next_offset"
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--database", default="results.sqlite", help="where results and offsets go")
    arguments = parser.parse_args()
    database = open_results(arguments.database, *TABLES)

    def place(partition: TopicPartition) -> int | None:
        wanted = (partition.topic, partition.partition)
        found = database.execute(
            "SELECT next_offset FROM progress WHERE topic = ? AND part = ?", wanted
        ).fetchone()
        return found[0] if found else None

    # The group's own commits, which go on in the background, are only for `penstock groups lag`.
    consumer = connect(arguments, **{"isolation.level": "read_committed"})
    for message in Input(consumer, arguments.topic, place).messages(arguments.exit_at_end):
        say("done" if write(database, message) else "left alone", message)
    consumer.close()


def write(database: sqlite3.Connection, message: Message) -> bool:
    database.execute("BEGIN IMMEDIATE")
    with database:  # commits, or rolls back on an exception
        place = (message.topic(), message.partition(), message.offset() + 1)
        if database.execute(ADVANCE, place).rowcount == 0:
            return False
        row = (message.key().decode(), message.value().decode())
        database.execute("INSERT INTO results VALUES (?, ?)", row)
    return True


if __name__ == "__main__":
    main()
