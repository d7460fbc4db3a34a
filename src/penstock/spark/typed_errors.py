"""What typed columns can fail with, on the driver and in tasks."""

from __future__ import annotations

from penstock.spark.errors import BadOption, SparkError


class NotTyped(BadOption):
    """A schema for which there is no type of Spark's."""


class DecodeFailed(SparkError):
    """A record does not decode, and `decode.errors` is fail (the default)."""
