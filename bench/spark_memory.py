"""The limit of a Python source in Spark: the rows that the topics have, from memory, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)


@dataclass
class Part(InputPartition):
    partition: int


class MemorySource(DataSource):
    """Options: partitions, rows (in each), batch_rows, value_bytes."""

    @classmethod
    def name(cls) -> str:
        return "bench_memory"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        options = self.options
        return MemoryReader(
            *(int(options[name]) for name in ("partitions", "rows", "batch_rows", "value_bytes"))
        )


class MemoryReader(DataSourceReader):
    def __init__(self, partitions: int, rows: int, batch_rows: int, value_bytes: int) -> None:
        self._partitions = partitions
        self._rows = rows
        self._batch_rows = batch_rows
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        return [Part(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        import numpy as np
        import pyarrow as pa

        names = [column.split()[0] for column in SCHEMA.split(", ")]
        for start in range(0, self._rows, self._batch_rows):
            count = min(self._batch_rows, self._rows - start)
            fixed = _fixed_columns(count, self._value_bytes, partition.partition)
            offsets = pa.array(np.arange(start, start + count, dtype=np.int64))
            columns = [*fixed[:4], offsets, *fixed[4:]]
            yield pa.RecordBatch.from_arrays(columns, names=[name.strip() for name in names])


@cache
def _fixed_columns(count: int, value_bytes: int, partition: int) -> list[Any]:
    """What is the same in each batch of a partition; a worker process serves many tasks and keeps it."""
    import numpy as np
    import pyarrow as pa

    now = np.datetime64("2024-01-01T00:00:00", "us") + np.arange(count) * np.timedelta64(1, "ms")
    topic = pa.array(["load"]).dictionary_encode().take(pa.array(np.zeros(count, np.int32)))
    return [
        pa.nulls(count, pa.binary()),
        pa.array([b"v" * value_bytes] * count, pa.binary()),
        topic.cast(pa.string()),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(now, pa.timestamp("us", tz="UTC")),
        pa.array(np.zeros(count, np.int32)),
    ]
