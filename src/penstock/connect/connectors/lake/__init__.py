"""A data lake: topics as Parquet or JSON files and as Delta or Iceberg tables, on a local disk or in
S3-compatible storage; and such files as a source."""

from penstock.connect.connectors.lake.sink import LakeSink
from penstock.connect.connectors.lake.source import LakeSource
from penstock.connect.connectors.lake.tables.sink import TableSink

__all__ = ["LakeSink", "LakeSource", "TableSink"]
