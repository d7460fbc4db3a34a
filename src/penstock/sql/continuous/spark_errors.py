"""Translates Spark's errors of a query, with positions in the user's text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from penstock.pipelines.failures import cause
from penstock.sql.errors import BadSyntax, Clash, Place, SqlError, Unknown, did_you_mean

PlaceAt = Callable[[int], Place]
_POSITION = re.compile(r"\(line (\d+), pos(?:ition)? (\d+)\)|line (\d+),? pos(?:ition)? (\d+)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_CLAUSES = (
    "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "UNION",
    "DISTINCT", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "LATERAL",
    "WITHIN", "WINDOW", "PARTITION", "EMIT",
)  # fmt: skip
_LEADING = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_PLACED = re.compile(r"\s*(;?\s*line \d+ pos \d+;?.*|== SQL.*|\(line \d+, pos(?:ition)? \d+\).*)$", re.DOTALL)


def translated(
    error: Exception,
    text: str,
    place_at: PlaceAt,
    columns: Iterable[str],
    functions: Callable[[], Iterable[str]],
) -> SqlError:
    """Of an error that Spark raised for `text`, which was made from the user's by `place_at`'s rewrite."""
    condition = _ask(error, "getCondition") or ""
    parameters: dict[str, str] = _ask(error, "getMessageParameters") or {}
    place = _place(error, text, place_at)
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "FIELD_NOT_FOUND")):
        name = parameters.get("objectName") or parameters.get("fieldName") or ""
        return Unknown(_no_column(name, columns, parameters), place)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        name = _unquoted(parameters.get("routineName", ""))
        return Unknown(f"no function `{name}`{did_you_mean(name, functions())}", place)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        name = _unquoted(parameters.get("relationName", ""))
        return Unknown(f"no stream or table `{name}`", place)
    if condition.startswith(("PARSE_SYNTAX_ERROR", "PARSE_EMPTY")):
        near = parameters.get("error", "")
        hint = parameters.get("hint", "")
        meant = _meant(error, text)
        return BadSyntax(f"syntax error at or near {near}{hint}{meant}" if near else _message(error), place)
    if condition.startswith("_LEGACY_ERROR_TEMP") and "pars" in str(error).lower():
        return BadSyntax(_message(error), place)
    kind = Clash if condition.startswith(_CLASHES) else SqlError
    return kind(_message(error), place)


_CLASHES = (
    "DATATYPE_MISMATCH", "INCOMPATIBLE", "CAST_", "AMBIGUOUS", "MISSING_AGGREGATION", "MISSING_GROUP_BY",
    "NUM_COLUMNS", "WRONG_NUM_ARGS", "UNSUPPORTED", "STREAMING", "GROUP", "INVALID", "NOT_SUPPORTED",
)  # fmt: skip


def _ask(error: Exception, method: str) -> Any:
    function = getattr(error, method, None)
    try:
        return function() if callable(function) else None
    except Exception:  # noqa: BLE001 - the JVM may not have it; then the text must do
        return None


def _place(error: Exception, text: str, place_at: PlaceAt) -> Place:
    """An error without a position belongs to the whole query."""
    return place_at(_offset(error, text) or 0)


def _meant(error: Exception, text: str) -> str:
    """A misspelled keyword is parsed as an alias: Spark reports the word after it."""
    offset = _offset(error, text)
    if offset is None:
        return ""
    found = [*_WORD.findall(text[:offset])[-1:], *_WORD.findall(text[offset:])[:1]]
    for word in found:
        near = difflib.get_close_matches(word.upper(), _CLAUSES, n=1, cutoff=0.7)
        if near and near[0] != word.upper():
            return f"; did you mean {near[0]}, not `{word}`?"
    return ""


def _offset(error: Exception, text: str) -> int | None:
    contexts = _ask(error, "getQueryContext") or []
    for context in contexts:
        try:
            start = int(context.startIndex())
        except Exception:  # noqa: BLE001 - the context of a DataFrame has no position
            continue
        return max(0, start)
    found = _POSITION.search(str(error))
    if found is None:
        return None
    line, column = (int(each) for each in found.groups() if each is not None)
    lines = text.split("\n")
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + column
    return min(offset, len(text))


def _message(error: Exception) -> str:
    text = _LEADING.sub("", cause(error))
    text = _PLACED.sub("", text).strip()
    return text.removesuffix(".") if text.count(".") == 1 else text


def _unquoted(name: str) -> str:
    return name.replace("`.`", ".").strip("`")


def _no_column(name: str, columns: Iterable[str], parameters: dict[str, str]) -> str:
    plain = _unquoted(name)
    last = plain.rpartition(".")[2]
    near = did_you_mean(last, (each for each in columns if not each.startswith("__penstock_")))
    if not near and (proposal := parameters.get("proposal")):
        first = re.split(r",\s*", proposal)[0]
        near = did_you_mean(last, [_unquoted(first).rpartition(".")[2]])
    return f"no column `{plain}`{near}"
