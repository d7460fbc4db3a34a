"""The schemas of Debezium's envelope. Each source adds its own `source` block."""

from __future__ import annotations

from penstock.connect.api import INT64_SCHEMA, STRING_SCHEMA, Schema, Type, struct_schema

OPTIONAL_INT64 = INT64_SCHEMA.as_optional()
OPTIONAL_STRING = STRING_SCHEMA.as_optional()
SNAPSHOT_SCHEMA = Schema(
    Type.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(
        ("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),
    ),
)
_TRANSACTION_SCHEMA = struct_schema(
    {"id": STRING_SCHEMA, "total_order": INT64_SCHEMA, "data_collection_order": INT64_SCHEMA},
    name="event.block",
    version=1,
).as_optional()
HEARTBEAT_KEY = struct_schema(
    {"serverName": STRING_SCHEMA}, name="io.debezium.connector.common.ServerNameKey", version=1
)
HEARTBEAT_VALUE = struct_schema(
    {"ts_ms": INT64_SCHEMA}, name="io.debezium.connector.common.Heartbeat", version=1
)


def envelope_tail(source_schema: Schema) -> dict[str, Schema]:
    """The fields after `before` and `after`."""
    return {
        "source": source_schema,
        "transaction": _TRANSACTION_SCHEMA,
        "op": STRING_SCHEMA,
        "ts_ms": OPTIONAL_INT64,
        "ts_us": OPTIONAL_INT64,
        "ts_ns": OPTIONAL_INT64,
    }
