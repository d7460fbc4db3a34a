"""The Delta table of the flights, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.demo.summary import Row


def row_count(path: Path) -> int:
    """From the table's log alone; 0 while there is no table."""
    table = _open(path)
    if table is None:
        return 0
    import pyarrow as pa

    return sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist())


def read_rows(path: Path) -> list[Row]:
    """All of it."""
    table = _open(path)
    if table is None:
        return []
    columns = ["id", "origin", "at", "delay_minutes", "cancelled", "hour"]
    return [
        Row(
            row["id"],
            row["origin"],
            int(row["at"].timestamp()),
            row["delay_minutes"],
            row["cancelled"],
            row["hour"] is not None,
        )
        for row in table.to_pyarrow_table(columns=columns).to_pylist()
    ]


def _open(path: Path) -> Any:
    if not (path / "_delta_log").is_dir():
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(path))
    except TableNotFoundError:
        return None  # its first version is being written
