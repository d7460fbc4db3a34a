"""Effectively once: the sender names each record, and the reader drops the names that it has seen.

Both may be killed at any time and started again. The sender then sends everything once more, under the same
names (`--send N`), and the reader reads some of it once more; the results have each name once.
"""

from __future__ import annotations

import argparse

from confluent_kafka import Producer
from reading import Input, commit, connect, options, say
from results import open_results


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--database", default="results.sqlite", help="where the results go")
    parser.add_argument("--send", type=int, metavar="N", help="send N records instead of reading")
    arguments = parser.parse_args()
    if arguments.send is not None:
        send(arguments)
    else:
        read(arguments)


def send(arguments: argparse.Namespace) -> None:
    # murmur2_random puts a key where Java's producer, Spark and SQL put it.
    settings = {"bootstrap.servers": arguments.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer({**settings, "enable.idempotence": True})

    def delivered(error: object, message: object) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")

    for number in range(arguments.send):
        # A name that a sender started again gives to the same thing again: not a counter of sendings.
        name = f"order-{number}"
        producer.produce(
            arguments.topic, key=name, value=f"{number} apples", headers={"id": name}, on_delivery=delivered
        )
        if number % 20 == 0:
            producer.flush()
            print(f"sent {name}", flush=True)
    producer.flush()


def read(arguments: argparse.Namespace) -> None:
    database = open_results(
        arguments.database, "CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, value TEXT)"
    )
    consumer = connect(arguments, **{"enable.auto.commit": False})
    for message in Input(consumer, arguments.topic).messages(arguments.exit_at_end):
        headers = dict(message.headers() or ())
        if "id" not in headers:
            raise SystemExit(
                f"record {message.offset()} of {message.topic()} has no header 'id' to know it by"
            )
        name = headers["id"].decode()
        # The result and the fact that the name was seen are one row: they cannot come apart.
        row = (name, message.value().decode())
        new = database.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", row).rowcount
        say("done" if new else "dropped", message)
        commit(consumer, message)
    consumer.close()


if __name__ == "__main__":
    main()
