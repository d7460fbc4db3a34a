"""Spark looks for `pyspark_<format>`: this is how `format("penstock")` is found without registration."""

from penstock.spark.source.data_source import PenstockDataSource


class DefaultSource(PenstockDataSource):
    """The name that Spark asks for."""
