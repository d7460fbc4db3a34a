"""Files of records: JSON lines, CSV and Parquet, written and read in pieces.

JSON lines and Parquet lose nothing. CSV is for spreadsheets: bytes that are not UTF-8 are in the columns
`key_base64` and `value_base64`, an empty cell is null, and a cell that a spreadsheet would take for a formula
has an apostrophe before it, which reading removes.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from penstock.admin.failure import CommandFailed, needs_extra
from penstock.admin.positions import iso_time
from penstock.admin.reader import IncomingRecord
from penstock.admin.records.outgoing import (
    BadRecord,
    OutgoingRecord,
    decode_json,
    encode_json,
    from_base64,
)

FORMATS = {"jsonl": "JSON lines", "csv": "CSV", "parquet": "Parquet"}
_ENDINGS = {"jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl", "csv": "csv", "parquet": "parquet"}
_ROWS = 10_000
_LONGEST_LINE = 1_000_000_000
_CSV = ("partition", "offset", "timestamp", "time", "key", "key_base64", "value", "value_base64", "headers")
_KNOWN = {*_CSV, "timestamp_type", "topic"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")


def format_of(path: str) -> str:
    """The format of a file by the end of its name; CommandFailed lists those that are known."""
    form = _ENDINGS.get(Path(path).suffix.lstrip(".").lower())
    if form is None:
        raise CommandFailed(f"'{path}' does not end with .jsonl, .csv or .parquet: name the format.")
    return form


# Writing


class Writer(Protocol):
    def write(self, records: Iterable[IncomingRecord]) -> None: ...
    def close(self) -> None:
        """Complete the file; it stays open."""
        ...


def writer(form: str, stream: IO[bytes]) -> Writer:
    kinds: dict[str, type[_JsonLines] | type[_Csv] | type[_Parquet]] = {
        "jsonl": _JsonLines,
        "csv": _Csv,
        "parquet": _Parquet,
    }
    return kinds[form](stream)


def as_bytes(form: str, records: Iterable[IncomingRecord]) -> bytes:
    out = io.BytesIO()
    made = writer(form, out)
    made.write(records)
    made.close()
    return out.getvalue()


class _JsonLines:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, records: Iterable[IncomingRecord]) -> None:
        self._stream.write(b"".join(map(encode_json, records)))

    def close(self) -> None:
        self._stream.flush()


class _Csv:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rows([_CSV])

    def write(self, records: Iterable[IncomingRecord]) -> None:
        self._rows(map(_cells, records))

    def _rows(self, rows: Iterable[Iterable[Any]]) -> None:
        out = io.StringIO()
        csv.writer(out).writerows(rows)
        self._stream.write(out.getvalue().encode(errors="replace"))

    def close(self) -> None:
        self._stream.flush()


def _cells(record: IncomingRecord) -> list[Any]:
    fields = json.loads(encode_json(record))
    stamp = fields["timestamp"]
    texts = {
        name: fields.get(name)
        if isinstance(fields.get(name), str | None)
        else json.dumps(fields[name], ensure_ascii=False)
        for name in ("key", "value")
    }
    return [
        fields["partition"],
        fields["offset"],
        "" if stamp is None else stamp,
        "" if stamp is None else iso_time(stamp),
        harmless(texts["key"] or ""),
        fields.get("key_base64", ""),
        harmless(texts["value"] or ""),
        fields.get("value_base64", ""),
        json.dumps(fields["headers"], ensure_ascii=False) if fields["headers"] else "",
    ]


def harmless(cell: str) -> str:
    """A cell that no spreadsheet interprets as a formula; `_plain` is the reverse."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _plain(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and cell[1:].startswith(_FORMULA) else cell


class _Parquet:
    def __init__(self, stream: IO[bytes]) -> None:
        with needs_extra("Parquet", "records"):
            import pyarrow as pa
            import pyarrow.parquet as pq

        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        self._schema = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", tz="UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
            ]
        )
        self._pa = pa
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")
        self._held: list[IncomingRecord] = []

    def write(self, records: Iterable[IncomingRecord]) -> None:
        self._held += records
        while len(self._held) >= _ROWS:
            self._flush(self._held[:_ROWS])
            self._held = self._held[_ROWS:]

    def _flush(self, records: list[IncomingRecord]) -> None:
        if not records:
            return
        stamps = [each.timestamp() for each in records]
        columns = {
            "partition": [each.partition() for each in records],
            "offset": [each.offset() for each in records],
            "timestamp": [stamp if kind else None for kind, stamp in stamps],
            "key": [each.key() for each in records],
            "value": [each.value() for each in records],
            "headers": [
                [{"key": name, "value": value} for name, value in each.headers() or ()] for each in records
            ],
        }
        arrays = [self._pa.array(columns[field.name], field.type) for field in self._schema]
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._flush(self._held)
        self._writer.close()


# Reading


def read_file(path: str, form: str) -> Iterator[OutgoingRecord]:
    """The records of a file; BadRecord names the line or row that is wrong."""
    if form == "parquet":
        yield from _read_parquet(path)
        return
    with open(path, "rb") as stream:
        yield from _read_lines(stream) if form == "jsonl" else _read_csv(stream)


def _read_lines(stream: IO[bytes]) -> Iterator[OutgoingRecord]:
    for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b""), 1):
        if not line.strip():
            continue
        try:
            yield decode_json(line)
        except (BadRecord, RecursionError) as error:
            raise BadRecord(f"line {number}: {error}") from error


def _read_csv(stream: IO[bytes]) -> Iterator[OutgoingRecord]:
    csv.field_size_limit(sys.maxsize)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        rows = csv.DictReader(text, strict=True)
        names = set(rows.fieldnames or ())
        if not names & {"key", "key_base64", "value", "value_base64"}:
            raise BadRecord("line 1: no column 'key' or 'value'")
        unknown = names - _KNOWN
        if unknown:
            raise BadRecord(f"line 1: unknown column '{min(unknown)}' (known: {', '.join(_CSV)})")
        for row in rows:
            try:
                yield _of_row(row)
            except (BadRecord, ValueError) as error:
                raise BadRecord(f"line {rows.line_num}: {error}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadRecord(f"not CSV in UTF-8: {error}") from error
    finally:
        text.detach()


def _of_row(row: dict[str, str | None]) -> OutgoingRecord:
    if None in row:
        raise BadRecord("more cells than columns")

    def part(name: str) -> bytes | None:
        encoded = row.get(f"{name}_base64")
        if encoded:
            return from_base64(encoded.encode())
        cell = row.get(name)
        return _plain(cell).encode() if cell else None

    def number(name: str) -> int | None:
        cell = row.get(name)
        return int(cell) if cell else None

    headers = row.get("headers")
    fields = {
        "headers": json.loads(headers) if headers else None,
        "partition": number("partition"),
        "timestamp": number("timestamp"),
    }
    record = decode_json(json.dumps(fields).encode())
    return OutgoingRecord(part("value"), part("key"), record.headers, record.partition, record.timestamp)


def _read_parquet(path: str) -> Iterator[OutgoingRecord]:
    with needs_extra("Parquet", "records"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        with pq.ParquetFile(path) as file:
            known = {"key", "value", "headers", "partition", "timestamp"}
            names = [name for name in file.schema_arrow.names if name in known]
            if not {"key", "value"} & set(names):
                raise BadRecord("no column 'key' or 'value'")
            for name in {"key", "value"} & set(names):
                kind = file.schema_arrow.field(name).type
                if not (_is_bytes(pa, kind) or pa.types.is_null(kind)):
                    raise BadRecord(f"column '{name}' is {kind}: it must be text or bytes")
            number = 0
            for batch in file.iter_batches(_ROWS, columns=names):
                for row in batch.to_pylist():
                    number += 1
                    try:
                        yield _of_fields(row)
                    except (BadRecord, TypeError, ValueError) as error:
                        raise BadRecord(f"row {number}: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise BadRecord(f"not a Parquet file that can be read: {error}") from error


def _is_bytes(pa: Any, kind: Any) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _of_fields(row: dict[str, Any]) -> OutgoingRecord:
    headers = [(_text(one["key"]), _data(one["value"])) for one in row.get("headers") or ()]
    stamp = row.get("timestamp")
    if stamp is not None and not isinstance(stamp, int):
        stamp = round(stamp.timestamp() * 1000)
    partition = row.get("partition")
    return OutgoingRecord(_data(row.get("value")), _data(row.get("key")), headers, partition, stamp)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise BadRecord(f"the name of a header is {name!r}: it must be text")
    return name


def _data(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise BadRecord(f"{value!r} is not text or bytes")
