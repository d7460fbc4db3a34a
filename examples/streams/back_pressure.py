"""Back-pressure: when processing becomes slow, batches become smaller, and larger again when it is fast.

A consumer that pulls is never flooded, but a batch that takes all there is can take too long. With
`targetBatchDuration` the source measures how long batches take, and asks for as much as fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from shared import Streams, connect, options

SAMPLE = [("events", None, str(number)) for number in range(25_000)]


def events(streams: Streams, target: str, most: int) -> DataFrame:
    return streams.read("events", targetBatchDuration=target, maxOffsetsPerTrigger=str(most))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--target", default="2s", help="how long a batch should take (%(default)s)")
    parser.add_argument("--most", type=int, default=1_000_000, help="records in a batch (%(default)s)")
    parsed = parser.parse_args(arguments)
    streams = connect(parsed, SAMPLE)
    writer = events(streams, parsed.target, parsed.most).writeStream
    streams.run(writer.foreachBatch(lambda batch, number: print(f"batch {number}: {batch.count()} records")))


if __name__ == "__main__":
    main()
