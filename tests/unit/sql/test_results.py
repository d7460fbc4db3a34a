"""Values as they are answered in JSON."""

from __future__ import annotations

import pyarrow as pa

from penstock.sql.results import arrow_rows

LATE = 1_735_689_600_000_000_000  # microseconds that somebody took for milliseconds


def test_times_that_python_has_no_year_for_are_told() -> None:
    utc, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0, LATE, None], utc),
            pa.array([0, -1_000_000, None], pa.date32()),
            pa.array([[0], [LATE, None], None], pa.list_(local)),
            pa.array([{"t": 0}, {"t": LATE}, None], pa.struct([("t", utc)])),
            pa.array([[("k", 0)], [("k", LATE)], None], pa.map_(pa.string(), local)),
        ],
        names=["a", "b", "c", "d", "e"],
    )
    first, late, nothing = arrow_rows([batch])
    epoch = "1970-01-01T00:00:00"
    assert first == [f"{epoch}Z", "1970-01-01", [epoch], {"t": f"{epoch}Z"}, {"k": epoch}]
    assert late[:2] == ["+56971-10-25T00:00:00Z", "-0768-02-04"]
    assert late[2] == [late[4]["k"], None] and late[3] == {"t": late[0]}
    assert nothing == [None] * 5


def test_a_variant_is_json() -> None:
    metadata = pa.field("metadata", pa.binary(), metadata={"variant": "true"})
    kind = pa.struct([pa.field("value", pa.binary()), metadata])
    made = pa.array([{"value": bytes([2, 1, 0, 0, 2, 12, 1]), "metadata": b"\x01\x01\x00\x01a"}, None], kind)
    assert list(arrow_rows([pa.RecordBatch.from_arrays([made], names=["v"])])) == [[{"a": 1}], [None]]
