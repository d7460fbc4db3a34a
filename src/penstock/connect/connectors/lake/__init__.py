"""Files of a data lake: records of topics as Parquet or JSON, on a local disk or in S3-compatible storage."""

from penstock.connect.connectors.lake.sink import LakeSink

__all__ = ["LakeSink"]
