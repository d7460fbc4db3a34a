"""Executes a text of statements in order, with the result of each as lines of JSON, up to the first error.

    {"statement": "SELECT …"}  {"columns": [["n", "BIGINT"]]}  {"row": [1]} …  {"done": "1 row"}
    {"statement": "DROP …"}    {"error": "Unknown", "message": "no table `t`", "line": 1, "column": 12}

SET and DEFINE apply to later statements of the same text; `{"done": …, "properties": {…}}` or `"variables"`
contain what the shell must send with its next request. A null value removes one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.sql.access.statements import names_files
from penstock.sql.continuous.sender_code import check_statement
from penstock.sql.errors import NotAllowed, Place, SqlError, Unavailable
from penstock.sql.language.parser import parse
from penstock.sql.language.properties import check_property, check_settings
from penstock.sql.language.statements import (
    CreateFunction,
    Describe,
    Explain,
    Select,
    SetProperty,
    SetVariable,
    Show,
    Statement,
)
from penstock.sql.results import Result, Rows, rows_of
from penstock.sql.server.pipe import Gone
from penstock.web.access import ANYONE, Principal, Role, allows, forbidden

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 500
_READING = (Select, Show, Describe, Explain)
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _stops() -> Unavailable:
    return Unavailable("this server stops: run the statement again")


class Executes(Protocol):
    """The engine, as far as a script needs it."""

    def execute(
        self, statement: Statement, properties: Mapping[str, str], *, user: str | None = None
    ) -> Result: ...


class Script:
    """One request. Call `run` in its own thread; `cancel` may be called from any other."""

    def __init__(
        self,
        text: str,
        properties: Mapping[str, str],
        variables: Mapping[str, str],
        engine: Executes,
        principal: Principal = ANYONE,
    ) -> None:
        self._text = text
        self._properties = dict(properties)
        self._variables = dict(variables)
        self._engine = engine
        self._principal = principal
        self._lock = threading.Lock()
        self._open: Rows | None = None
        self._cancelled = False

    def run(self, put: Callable[[bytes], None]) -> bool:
        """Returns whether all statements succeeded. Gone from `put` ends it."""
        try:
            for name, value in self._properties.items():
                check_property(name, value)
            check_setting_role(self._properties, self._principal)
            for statement in parse(self._text, self._variables):
                if self._cancelled:
                    return False
                put(line({"statement": statement.text[slice(*statement.span)].strip()}))
                self._one(statement, put)
            return True
        except Gone:
            return False
        except SqlError as error:
            return self._failed(put, (_stops() if self._cancelled else error).as_json())
        except PenstockError as error:
            return self._failed(put, {"error": type(error).__name__, "message": str(error)})
        except Exception as error:
            log.exception("a statement failed")
            first = str(error).strip().partition("\n")[0][:500]
            message = f"{type(error).__name__}: {first}" if first else type(error).__name__
            return self._failed(put, {"error": "Internal", "message": message})

    def _failed(self, put: Callable[[bytes], None], error: dict[str, Any]) -> bool:
        try:
            put(line(error))
        except Gone:
            pass
        return False

    def cancel(self) -> None:
        """The client has disconnected, or this server stops: ends the current statement."""
        with self._lock:
            self._cancelled = True
            rows = self._open
        if rows is not None:
            rows.close()

    def _one(self, statement: Statement, put: Callable[[bytes], None]) -> None:
        if isinstance(statement, SetProperty):
            at = max(statement.text.find(statement.name, statement.span[0]), statement.span[0])
            place = Place.of(statement.text, at)
            check_property(statement.name, statement.value, place)
            check_setting_role([statement.name], self._principal, place)
            return put(line(self._set(statement.name, statement.value, self._properties, "properties")))
        if isinstance(statement, SetVariable):
            # The parser has applied it to the following statements.
            return put(line(self._set(statement.name, statement.value, self._variables, "variables")))
        if isinstance(statement, Show) and statement.what in ("variables", "properties"):
            shown = self._properties if statement.what == "properties" else self._variables
            columns = (("name", "STRING"), ("value", "STRING"))
            return self._send(rows_of(columns, [list(pair) for pair in sorted(shown.items())]), put)
        check_role(statement, self._principal)
        result = self._engine.execute(statement, self._properties, user=user_of(self._principal))
        if isinstance(result, Rows):
            return self._send(result, put)
        put(line({"done": result.message, **({"details": dict(result.details)} if result.details else {})}))

    def _set(self, name: str, value: str | None, into: dict[str, str], what: str) -> dict[str, Any]:
        if value is None:
            into.pop(name, None)
            return {"done": f"{name} is unset", what: {name: None}}
        into[name] = value
        return {"done": f"{name} = {value}", what: {name: value}}

    def _send(self, result: Rows, put: Callable[[bytes], None]) -> None:
        with self._opened(result) as rows:
            # An error in computing the first row is sent instead of the columns.
            rows = rows if result.live else _begun(rows)
            put(
                line(
                    {
                        "columns": [list(each) for each in result.columns],
                        **({"live": True} if result.live else {}),
                    }
                )
            )
            count = 0
            if result.live:
                for row in rows:
                    put(line({"row": row}))
                    count += 1
            else:
                lines: list[bytes] = []
                for row in rows:
                    lines.append(line({"row": row}))
                    if len(lines) == _ROWS_AT_ONCE:
                        put(b"".join(lines))
                        count += len(lines)
                        lines = []
                put(b"".join(lines))
                count += len(lines)
        if self._cancelled:
            raise _stops()
        put(line({"done": "1 row" if count == 1 else f"{count} rows"}))

    @contextmanager
    def _opened(self, result: Rows) -> Iterator[Iterator[list[Any]]]:
        with self._lock:
            self._open = result
            cancelled = self._cancelled
        try:
            if cancelled:
                raise Gone
            yield result.rows
        finally:
            with self._lock:
                self._open = None
            result.close()


def _begun(rows: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """The same rows, with the first one computed."""
    return chain(list(islice(rows, 1)), rows)


def user_of(principal: Principal) -> str | None:
    """The user's name at the cluster; None without logins."""
    return None if principal is ANYONE else principal.name


def check_role(statement: Statement, principal: Principal) -> None:
    """Raises NotAllowed if the user's role is not sufficient for a statement."""
    needed = Role.READ if isinstance(statement, _READING) else Role.WRITE
    if isinstance(statement, CreateFunction) or names_files(statement):
        needed = Role.ADMIN  # code that runs here, or files of this machine
    if not allows(principal, needed):
        raise NotAllowed(forbidden(principal, needed).message, Place.of(statement.text, statement.span[0]))
    if principal.role is not Role.ADMIN:
        try:
            check_statement(statement)
        except NotAllowed as error:
            message = f"{forbidden(principal, Role.ADMIN).message}, because the statement runs code"
            raise NotAllowed(message, error.place) from None


def check_setting_role(names: Iterable[str], principal: Principal, place: Place | None = None) -> None:
    """Raises NotAllowed for Spark settings that only administrators may set: some name classes, files
    or hosts.
    """
    if not allows(principal, Role.ADMIN):
        check_settings(names, forbidden(principal, Role.ADMIN).message, place)


def line(value: Mapping[str, Any]) -> bytes:
    return _dump(value).encode() + b"\n"
