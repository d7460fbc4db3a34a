"""SQL conditions on records, such as `json->>'$.customer.city' = 'Berlin' AND partition = 3`, with DuckDB.

A condition is one expression: DuckDB parses it as such, so it cannot be a statement or leave its WHERE. The
engine has no access to files, networks, extensions or Python's variables, and a bounded memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.admin.failure import needs_extra
from penstock.errors import PenstockError

with needs_extra("a SQL condition", "records"):
    import duckdb

if TYPE_CHECKING:
    from penstock.admin.records.columns import Chunk

COLUMNS = {
    "partition": "INTEGER",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP, in UTC",
    "key": "VARCHAR; NULL if it is null or not UTF-8",
    "value": "VARCHAR; NULL if it is null or not UTF-8",
    "json": "JSON: the value, or NULL if it is not JSON",
    "key_json": "JSON: the key, or NULL if it is not JSON",
    "headers": "MAP(VARCHAR, VARCHAR): headers['name']; the last one of a name",
    "key_bytes": "BLOB",
    "value_bytes": "BLOB",
}
_LOCKED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET memory_limit = '512MB'",
    "SET threads = 1",
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)
_LONGEST = 10_000
_ROW = "penstock_row"
_JSON = pa.json_(pa.string())
_MALFORMED = "Malformed JSON"
_TIMESTAMP = pa.timestamp("us")

Decode = Callable[[int, bytes], str | None]
"""The text of the key or value in a row if it has a schema, else None."""


class BadCondition(PenstockError):
    """An invalid condition, or one that fails on a record."""


class Condition:
    """A condition, checked when it is made. For one thread."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise BadCondition("the condition is empty")
        if len(text) > _LONGEST:
            raise BadCondition(f"the condition has more than {_LONGEST:,} characters")
        self._engine = duckdb.connect(":memory:")
        for statement in _LOCKED:
            self._engine.execute(statement)
        self._text, words = _quoted(text)
        self._used = [name for name in COLUMNS if name in words]
        empty = pa.table(
            {
                "partition": pa.array([], pa.int32()),
                "offset": pa.array([], pa.int64()),
                "timestamp": pa.array([], _TIMESTAMP),
                "key": pa.array([], pa.string()),
                "value": pa.array([], pa.string()),
                "json": pa.ExtensionArray.from_storage(_JSON, pa.array([], pa.string())),
                "key_json": pa.ExtensionArray.from_storage(_JSON, pa.array([], pa.string())),
                "headers": pa.array([], pa.map_(pa.string(), pa.string())),
                "key_bytes": pa.array([], pa.binary()),
                "value_bytes": pa.array([], pa.binary()),
            }
        )
        self._filtered(empty.append_column(_ROW, pa.array([], pa.int64())), ())

    def rows(
        self, chunk: Chunk, decode_key: Decode | None = None, decode_value: Decode | None = None
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows of a chunk for which the condition is true."""
        found = chunk.columns
        return self._rows(
            len(chunk),
            {
                "partition": lambda: found.column("partition"),
                "offset": lambda: found.column("offset"),
                "timestamp": lambda: found.column("timestamp").cast(_TIMESTAMP),
                "headers": lambda: _map([_pairs(one) for one in found.column("headers").to_pylist()]),
                "key_bytes": lambda: found.column("key"),
                "value_bytes": lambda: found.column("value"),
            },
            decode_key,
            decode_value,
        )

    def select(self, records: Iterable[Any]) -> list[Any]:
        """The records, such as confluent-kafka's messages, for which the condition is true."""
        held = list(records)
        if not held:
            return []
        rows = self._rows(
            len(held),
            {
                "partition": lambda: pa.array([each.partition() for each in held], pa.int32()),
                "offset": lambda: pa.array([each.offset() for each in held], pa.int64()),
                "timestamp": lambda: pa.array([_micros(*each.timestamp()) for each in held], pa.int64()).view(
                    _TIMESTAMP
                ),
                "headers": lambda: _map([each.headers() or () for each in held]),
                "key_bytes": lambda: pa.array([each.key() for each in held], pa.binary()),
                "value_bytes": lambda: pa.array([each.value() for each in held], pa.binary()),
            },
        )
        return [held[row] for row in rows]

    def _rows(
        self,
        count: int,
        columns: dict[str, Callable[[], pa.Array]],
        decode_key: Decode | None = None,
        decode_value: Decode | None = None,
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        used = {name: columns[name]() for name in self._used if name in columns}
        texts: dict[str, pa.Array] = {}
        for name, decode in (("key", decode_key), ("value", decode_value)):
            form = "key_json" if name == "key" else "json"
            if name not in self._used and form not in self._used:
                continue
            if name not in texts:
                texts[name] = _text(columns[f"{name}_bytes"](), decode)
            if name in self._used:
                used[name] = texts[name]
            if form in self._used:
                used[form] = pa.ExtensionArray.from_storage(_JSON, texts[name])
        used[_ROW] = pa.array(np.arange(count, dtype=np.int64))
        table = pa.table(used)
        try:
            return self._filtered(table, ())
        except _MalformedJson:
            # Once more, and slower, with what is no JSON as NULL.
            checked = [name for name in ("json", "key_json") if name in used]
            for name in checked:
                at = table.column_names.index(name)
                table = table.set_column(at, name, pc.cast(used[name].storage, pa.string()))
            return self._filtered(table, checked)

    def _filtered(self, table: pa.Table, checked: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        try:
            relation = self._engine.from_arrow(table)
            if checked:
                # names of this module, not of the user
                shown = (
                    f"try_cast({n} AS JSON) AS {n}" if n in checked else f'"{n}"' for n in table.column_names
                )
                relation = relation.project(", ".join(shown))
            found = relation.filter(self._text).project(_ROW).fetchnumpy()[_ROW]
        except duckdb.Error as error:
            text = str(error)
            if _MALFORMED in text and not checked and {"json", "key_json"} & set(table.column_names):
                raise _MalformedJson from error
            raise BadCondition(_reason(text)) from error
        return np.sort(np.asarray(found, np.int64))


class _MalformedJson(Exception):
    """A value is not JSON."""


def _quoted(text: str) -> tuple[str, set[str]]:
    """The condition with `offset` in quotes, which is a keyword, and the words in it."""
    try:
        tokens = duckdb.tokenize(text)
    except duckdb.Error as error:
        raise BadCondition(_reason(str(error))) from error
    data = text.encode()
    out, at = bytearray(), 0
    words: set[str] = set()
    for position, _ in tokens:
        # Positions are in bytes.
        match = re.match(rb'"((?:[^"]|"")*)"|[A-Za-z_]\w*', data[position:])
        if match is None:
            continue
        word = (match[1] if match[1] is not None else match[0]).decode(errors="replace").lower()
        words.add(word)
        if word == "offset" and match[1] is None:
            out += data[at:position] + b'"offset"'
            at = position + len(match[0])
    return (bytes(out) + data[at:]).decode(), words


def _reason(text: str) -> str:
    """DuckDB's message without the statement around the condition."""
    first = text.split("\n\nLINE")[0].strip()
    kind, colon, rest = first.partition(": ")
    words = " ".join((rest if colon and kind.endswith("Error") else first).split())
    words = words.split(" Candidate bindings:")[0].replace("FROM clause", "records")
    hint = ""
    if "not found in" in words:
        hint = f" (columns: {', '.join(COLUMNS)})"
    elif _MALFORMED in words:
        hint = " (write a text for ->> as in json->>'$.city' = 'Berlin')"
    elif kind == "Conversion Error":
        hint = " (TRY_CAST gives NULL where a cast fails)"
    return f"the condition fails: {words}{hint}"


def _text(data: pa.Array, decode: Decode | None) -> pa.Array:
    """Bytes as UTF-8, NULL where they are not; with `decode`, what has a schema as it says."""
    if decode is None:
        try:
            return data.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    texts: list[str | None] = []
    for row, each in enumerate(data.to_pylist()):
        text: str | None = None
        if each is not None:
            text = decode(row, each) if decode is not None and each[:1] in (b"\x00", b"\x01") else None
            if text is None:
                try:
                    text = each.decode()
                except UnicodeDecodeError:
                    pass
        texts.append(text)
    return pa.array(texts, pa.string())


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in headers or ()]


def _map(headers: list[Any]) -> pa.Array:
    """A map has each name once."""
    rows = [
        [
            (name, None if value is None else value.decode(errors="replace"))
            for name, value in dict(one).items()
        ]
        for one in headers
    ]
    return pa.array(rows, pa.map_(pa.string(), pa.string()))


def _micros(kind: int, milliseconds: int) -> int | None:
    return milliseconds * 1000 if kind else None
