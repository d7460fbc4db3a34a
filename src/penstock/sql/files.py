"""Delta tables in memory for pull queries: loaded once, then kept by the rows that each version changes.

Each lookup looks at the table's log first. Versions of which the engine has told the changed rows are put on
top of what is there; for any other version (another writer's, or one from before this server led) the table
is loaded anew.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.sql.catalog import Relation
from penstock.sql.images import Image, NotInMemory, Row
from penstock.sql.pull import Pull

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MOST_CHANGES = 1000
"""Versions that are remembered for a table until it is asked for."""

Changes = Sequence[tuple[Any, Row | None]]


class _Loaded:
    """One table, which one thread at a time brings up to date."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.lock = threading.Lock()
        self.table: DeltaTable | None = None
        self.version = -1
        self.image = Image(relation)
        self.told: dict[int, Changes] = {}


class FileImages:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, _Loaded] = {}

    def find(self, relation: Relation, pull: Pull) -> list[Row]:
        from deltalake.exceptions import DeltaError

        if relation.path is None or relation.options.get("storage", "delta") != "delta":
            raise NotInMemory(f"{relation.name} is not kept in a Delta table")
        with self._lock:
            loaded = self._loaded.get(relation.folded)
            if loaded is None or loaded.relation != relation:
                loaded = self._loaded[relation.folded] = _Loaded(relation)
        with loaded.lock:
            try:
                self._bring_up(loaded)
            except (DeltaError, OSError) as error:
                loaded.table, loaded.version = None, -1
                raise NotInMemory(f"{relation.name}: {error}") from None  # Spark may have better luck
            return loaded.image.find(pull)

    def changed(self, relation: Relation, version: int, rows: Changes) -> None:
        with self._lock:
            loaded = self._loaded.get(relation.folded)
        if loaded is None or loaded.relation != relation:
            return  # it is loaded when somebody asks for it
        with loaded.lock:
            loaded.told[version] = list(rows)
            while len(loaded.told) > _MOST_CHANGES:
                loaded.told.pop(next(iter(loaded.told)))

    def forget(self, folded: str) -> None:
        with self._lock:
            self._loaded.pop(folded, None)

    def _bring_up(self, loaded: _Loaded) -> None:
        from deltalake import DeltaTable

        path = loaded.relation.path
        assert path is not None
        if loaded.table is None:
            if not DeltaTable.is_deltatable(path):
                return  # no batch has been written yet
            loaded.table = DeltaTable(path)
        else:
            loaded.table.update_incremental()
        newest = loaded.table.version()
        if newest == loaded.version:
            return
        wanted = range(loaded.version + 1, newest + 1)
        if loaded.version >= 0 and all(version in loaded.told for version in wanted):
            for version in wanted:
                loaded.image.put(loaded.told.pop(version))
        else:
            loaded.image = self._load(loaded.relation, loaded.table)
        loaded.told = {version: rows for version, rows in loaded.told.items() if version > newest}
        loaded.version = newest

    def _load(self, relation: Relation, table: DeltaTable) -> Image:
        image = Image(relation)
        names = {name.casefold(): name for name in table.to_pyarrow_dataset().schema.names}
        chosen = [names[column.name.casefold()] for column in relation.columns]
        rows = table.to_pyarrow_table(columns=chosen).to_pylist(maps_as_pydicts="lossy")
        key = relation.key_columns
        for row in rows:
            named = {column.name: row[name] for column, name in zip(relation.columns, chosen)}
            image.put([(tuple(named[name] for name in key), named)])
        return image
