"""The settings of an Iceberg catalog, without pyiceberg, whose import takes seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.connect.api import BadConfig

CATALOG = "iceberg.catalog."
"""Settings with this prefix are the catalog's own, as pyiceberg names them."""
TYPES = ("rest", "hive", "glue", "dynamodb", "sql", "in-memory", "bigquery")


def catalog_properties(config: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Those that were given; for a local directory by default a catalog in a SQLite file there."""
    given = {name.removeprefix(CATALOG): value for name, value in config.items() if name.startswith(CATALOG)}
    url = str(settings["url"])
    for name, setting in (
        ("s3.endpoint", "s3.endpoint"),
        ("s3.region", "s3.region"),
        ("s3.access-key-id", "aws.access.key.id"),
        ("s3.secret-access-key", "aws.secret.access.key"),
    ):
        if settings.get(setting):
            given.setdefault(name, str(settings[setting]))
    if url.startswith("s3://"):
        given.setdefault("warehouse", url.rstrip("/"))
    else:
        root = os.path.abspath(url.removeprefix("file://"))
        given.setdefault("warehouse", f"file://{root}")
        if "type" not in given and "uri" not in given:
            given |= {"type": "sql", "uri": f"sqlite:///{root}/catalog.db"}
    kind = given.get("type")
    if kind is not None and kind not in TYPES:
        known = ", ".join(TYPES)
        raise BadConfig({CATALOG + "type": [f"{kind} is not a type of catalog: use one of {known}"]})
    if "type" not in given and "uri" not in given:
        raise BadConfig(
            {CATALOG + "uri": ["format=iceberg on S3 needs a catalog: set iceberg.catalog.type and its uri"]}
        )
    return given
