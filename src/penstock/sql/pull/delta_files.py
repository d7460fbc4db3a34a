"""Delta tables in memory for pull queries: the rows of each of a table's files, as Arrow.

Each lookup reads the table's log first. The files of a Delta table never change, so a new version only costs
reading the files that it added. A lookup compares the key columns of all rows, which takes less than a
millisecond for a hundred thousand rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.sql.catalog.catalog import Relation
from penstock.sql.pull.materialized import NotInMemory, Row, answer
from penstock.sql.pull.plan import WINDOW_COLUMNS, Key, Pull

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


class _Loaded:
    """One table; one thread at a time updates it."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.asked_at = 0.0
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._table: DeltaTable | None = None
        self._commit: tuple[int, int] | None = None
        self._of: tuple[str, pa.Schema] | None = None
        """The table's id and columns, which `_files` hold."""
        self._files: dict[str, pa.Table] = {}
        self._rows: pa.Table | None = None
        """Of all files; None while there is no table."""

    def rows(self) -> pa.Table | None:
        """The current rows."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        with self._lock:
            try:
                self._bring_up()
            except (DeltaError, OSError, pa.ArrowException) as error:
                raise NotInMemory(f"{self.relation.name}: {error}") from None  # Spark may be able to read it
            return self._rows

    def _bring_up(self) -> None:
        from deltalake import DeltaTable

        path = self.relation.path
        assert path is not None
        table = self._table
        if table is not None and self._commit is not None and self._commit == _commit_file(path, table):
            version = table.version()
            table.update_incremental()
            if table.version() == version:
                return
        elif DeltaTable.is_deltatable(path):
            # The first time. Or the table was deleted and recreated, which an open table does not notice. Or
            # its log is not in the file system, so that this cannot be determined.
            table = DeltaTable(path)
        else:
            self._forget()  # no batch has been written yet
            return
        self._commit = None  # after any failure, the next lookup opens it again
        self._read(table)
        self._table, self._commit = table, _commit_file(path, table)

    def _read(self, table: DeltaTable) -> None:
        import pyarrow as pa
        import pyarrow.dataset as ds

        dataset = table.to_pyarrow_dataset()
        of = (str(table.metadata().id), dataset.schema)
        known = self._files if self._of == of else {}
        there = {name.casefold(): name for name in dataset.schema.names}
        missing = [each.name for each in self.relation.columns if each.name.casefold() not in there]
        if missing:
            raise NotInMemory(f"{self.relation.name} has no column {', '.join(missing)} any more")
        columns = {each.name: ds.field(there[each.name.casefold()]) for each in self.relation.columns}
        files: dict[str, pa.Table] = {}
        for fragment in dataset.get_fragments():
            found = known.get(fragment.path)
            if found is None:
                found = fragment.to_table(schema=dataset.schema, columns=columns)
            files[fragment.path] = found
        types = [(name, dataset.schema.field(there[name.casefold()]).type) for name in columns]
        self._rows = pa.concat_tables([pa.schema(types).empty_table(), *files.values()])
        self._of, self._files = of, files


class FileImages:
    """Thread-safe."""

    def __init__(self, forget_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._forget_seconds = forget_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._loaded: dict[str, _Loaded] = {}

    def find(self, relation: Relation, pull: Pull) -> list[Row]:
        if relation.path is None or relation.options.get("storage", "delta") != "delta":
            raise NotInMemory(f"{relation.name} is not kept in a Delta table")
        now = self._clock()
        with self._lock:
            loaded = self._loaded.get(relation.folded)
            if loaded is None or loaded.relation != relation:
                loaded = self._loaded[relation.folded] = _Loaded(relation)
            loaded.asked_at = now
            for name, each in list(self._loaded.items()):
                if each.asked_at < now - self._forget_seconds:
                    del self._loaded[name]
        rows = loaded.rows()
        return [] if rows is None else answer(pull, _by_key(rows, relation, pull))

    @property
    def names(self) -> list[str]:
        """The tables that are in memory."""
        with self._lock:
            return sorted(each.relation.name for each in self._loaded.values())

    def forget(self, folded: str) -> None:
        with self._lock:
            self._loaded.pop(folded, None)


def _by_key(rows: pa.Table, relation: Relation, pull: Pull) -> dict[Key, list[Row]]:
    """The rows that may match the pull query."""
    import pyarrow as pa
    import pyarrow.compute as pc

    key = [name for name in relation.key_columns if name.casefold() not in WINDOW_COLUMNS]
    for name, values in zip(key, zip(*pull.keys)):
        column = rows[name]
        try:
            wanted = pa.array(dict.fromkeys(values), column.type)
        except (pa.ArrowException, TypeError) as error:  # the table has another type than the relation
            raise NotInMemory(f"{relation.name}.{name}: {error}") from None
        rows = rows.filter(pc.is_in(column, wanted))
    found: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in rows.to_pylist(maps_as_pydicts="lossy"):
        found[tuple(row[name] for name in key)].append(row)
    return found


def _commit_file(path: str, table: DeltaTable) -> tuple[int, int] | None:
    """Distinguishes the commit of the table's version from one with the same number in a recreated table."""
    try:
        found = os.stat(os.path.join(path, "_delta_log", f"{table.version():020}.json"))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
