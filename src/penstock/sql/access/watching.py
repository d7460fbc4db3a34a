"""Ends a push query when its user may no longer read its sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.sql.errors import NotAllowed, SqlError, Unknown
from penstock.sql.results import Rows

_SECONDS = 2.0


def while_allowed(rows: Rows, check: Callable[[], None], seconds: float = _SECONDS) -> Rows:
    """The same rows, for as long as `check` raises neither NotAllowed nor Unknown; then raises that error."""
    ended = threading.Event()
    denied: list[SqlError] = []

    def watch() -> None:
        while not ended.wait(seconds):
            try:
                check()
            except (NotAllowed, Unknown) as error:
                denied.append(error)
                rows.close()
                return
            except SqlError:
                continue  # the cluster does not respond, and so gives the query no records either

    def each() -> Iterator[list[Any]]:
        threading.Thread(target=watch, name="sql-rights", daemon=True).start()
        try:
            yield from rows.rows
        finally:
            ended.set()
        if denied:
            raise denied[0]

    def close() -> None:
        ended.set()
        rows.close()

    return Rows(rows.columns, each(), live=rows.live, close=close)
