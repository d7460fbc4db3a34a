"""A process with one sink task that puts numbers from the stored offset on, and prints how far it is."""

from __future__ import annotations

import sys

from penstock.connect.api import SinkRecord
from penstock.connect.connectors.sql.sink import SqlSinkTask


def main(url: str, count: int) -> None:
    task = SqlSinkTask()
    task.start({"name": "sink", "connection.url": url, "auto.create": "true", "batch.size": "20"})
    found = task.open([("items", 0)]) or {}
    offset = found.get(("items", 0), 0)
    print(offset, flush=True)
    while offset < count:
        numbers = range(offset, min(offset + 50, count))
        task.put(
            [
                SinkRecord(
                    "items", 0, n, {"n": n}, original_topic="items", original_partition=0, original_offset=n
                )
                for n in numbers
            ]
        )
        offset = numbers.stop
        print(offset, flush=True)
    task.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
