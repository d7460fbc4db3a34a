"""A process with a Redis sink task that puts numbers from the stored offset on and prints how far it is."""

from __future__ import annotations

import sys

from penstock.connect.connectors.redis.sink import RedisSinkTask
from tests.connect.messaging.helpers import record


def main(port: str, count: int) -> None:
    task = RedisSinkTask()
    task.start({"name": "sink", "redis.uri": f"redis://127.0.0.1:{port}"})
    found = task.open([("items", 0)]) or {}
    offset = found.get(("items", 0), 0)
    print(offset, flush=True)
    while offset < count:
        numbers = range(offset, min(offset + 20, count))
        task.put([record(n, {"n": n}) for n in numbers])
        offset = numbers.stop
        print(offset, flush=True)
    task.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
