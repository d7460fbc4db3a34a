"""Priorities: a topic of urgent records is served first, whatever waits in the others.

Kafka has no priorities inside a topic, so what is urgent has a topic of its own. `priorityTopics` makes room
for it in each batch before the others get any, and `coalesce(1)` reads the batch in that order, in one task.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from shared import Streams, start

SAMPLE = [("tickets", None, f"ticket {number}") for number in range(30)] + [
    ("tickets.urgent", None, f"urgent {number}") for number in range(4)
]


def tickets(streams: Streams) -> DataFrame:
    waiting = streams.read(
        "tickets,tickets.urgent", priorityTopics="tickets.urgent", maxOffsetsPerTrigger="10"
    )
    return waiting.select("value").coalesce(1)


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(tickets(streams), "tickets.handled")


if __name__ == "__main__":
    main()
