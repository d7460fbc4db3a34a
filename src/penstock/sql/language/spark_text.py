"""Rewrites a query for Spark: replaces Penstock's clauses by Spark SQL.

WINDOW becomes a `window(…)` or `session_window(…)` of the GROUP BY, WITHIN two time bounds in the join's
condition; PARTITION BY, EMIT and the LIMIT of a push query are removed, columns are added to the SELECT
lists. Pure; every offset in the new text maps to a position in the user's text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.lexer.keywords import WINDOW_BOUNDS
from penstock.sql.language.lexer.texts import Piece, Pieces
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.statements import Query, SelectPart, Source, Span, Window, Within
from penstock.sqltext.identifiers import quoted

TIME_COLUMN = "__timestamp"
"""Of every view: when the record happened."""

Extra = tuple[str, str | Span]
_Part = tuple[str, int | None]
"""Some text, and where it was copied from; None if it was made up."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    text: str
    query: Query
    pieces: Pieces

    def place(self, offset: int) -> Place:
        """The position in the user's text of this offset in Spark's text."""
        return Place.of(self.query.text, self.pieces.origin(max(0, min(offset, len(self.text)))))

    def place_at(self, line: int, column: int) -> Place:
        """The same for a line (from 1) and a column (from 0, as in Spark's parser) of the new text."""
        before = self.text.split("\n")[: line - 1]
        return self.place(sum(len(each) + 1 for each in before) + column)


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    parts: tuple[_Part, ...] = ()


def to_spark(
    query: Query,
    *,
    time_columns: Mapping[str, str] = {},
    extra: Sequence[Extra] = (),
    drop_having: bool = False,
    window_columns: bool = False,
) -> Rewritten:
    """The query for Spark.

    `time_columns`: expressions of the event time by alias, if it is not the alias's `__timestamp`. `extra`:
    columns to add to the outermost SELECT (to all branches of a UNION): name and expression, or the place of
    one in the query's text, such as its HAVING. In an expression, `{source}` stands for the (quoted) alias of
    the SELECT's first relation, WINDOWSTART and WINDOWEND for the bounds of its window. `window_columns`: add
    `window_start` and `window_end` to a SELECT with a window that does not have them.
    """
    edits: list[_Edit] = []
    for part in query.selects:
        if part.window is not None:
            edits += _window_edits(part, part.window, time_columns)
        if part.outermost:
            edits += _added_columns(query, part, extra, window_columns)
            if drop_having and part.having_clause is not None:
                edits.append(_Edit(*part.having_clause))
    for within in query.withins:
        edits += _within_edits(within, time_columns)
    matched = [each.span for each in query.patterns]
    edits += [
        _Edit(*each.span, ((_view(each), None),))
        for each in query.sources
        if "." in each.name and not any(start <= each.span[0] < end for start, end in matched)
    ]
    for number, each in enumerate(query.patterns):
        named = "" if each.aliased else f" AS {quoted(each.alias)}"
        edits.append(_Edit(*each.span, ((pattern_view(number) + named, None),)))
    if query.partition_clause is not None:
        edits.append(_Edit(*query.partition_clause))
    if query.emit is not None and query.limit_clause is not None and query.limit_clause[1] <= query.span[1]:
        edits.append(_Edit(*query.limit_clause))
    return _apply(query, edits)


def pattern_view(number: int) -> str:
    """The name of the view with the matches of a query's MATCH_RECOGNIZE."""
    return f"__penstock_pattern_{number}"


def window_bound(window: Window, bound: str) -> str:
    """`window.start` or `session_window.end`"""
    return f"{'session_window' if window.kind == 'session' else 'window'}.{bound}"


def _window_edits(part: SelectPart, window: Window, time_columns: Mapping[str, str]) -> list[_Edit]:
    call = _window_call(window, _time(part.source or "", time_columns))
    joint = ", " if part.group_by else " GROUP BY "
    edits = [_Edit(*window.span), _Edit(part.group_end, part.group_end, ((joint + call, None),))]
    for mark in part.marks:
        named = f" AS window_{mark.bound}" if mark.bare else ""
        edits.append(_Edit(*mark.span, ((window_bound(window, mark.bound) + named, None),)))
    return edits


def _added_columns(
    query: Query, part: SelectPart, extra: Sequence[Extra], window_columns: bool
) -> list[_Edit]:
    added = list(extra)
    if window_columns and part.window is not None:
        names = {(name or "").casefold() for name, _ in part.projections}
        missing = [bound for bound in ("start", "end") if f"window_{bound}" not in names]
        added = [(f"window_{bound}", window_bound(part.window, bound)) for bound in missing] + added
    if added and not part.projections:
        raise BadSyntax("this query must begin with SELECT", Place.of(query.text, query.span[0]))
    edits: list[_Edit] = []
    for name, value in added:
        if isinstance(value, str):
            parts = _with_bounds(value.replace("{source}", quoted(part.source or "")), None, part.window)
        else:
            parts = _with_bounds(query.text[value[0] : value[1]], value[0], part.window)
        whole = ((", (", None), *parts, (f") AS {quoted(name)}", None))
        edits.append(_Edit(part.projection_end, part.projection_end, whole))
    return edits


def _within_edits(within: Within, time_columns: Mapping[str, str]) -> list[_Edit]:
    left, right = _time(within.left, time_columns), _time(within.right, time_columns)
    start, end = within.condition
    earliest = f"{right} >= {left} - INTERVAL {within.before}"
    latest = f"{right} <= {left} + INTERVAL {within.after}"
    return [
        _Edit(*within.span),
        _Edit(start, start, (("(", None),)),
        _Edit(end, end, ((f") AND {earliest} AND {latest}", None),)),
    ]


def _view(source: Source) -> str:
    """A name with dots is one name; Spark would read it as a table of a database."""
    return quoted(source.name) + ("" if source.aliased else f" AS {quoted(source.alias)}")


def _window_call(window: Window, time: str) -> str:
    if window.kind == "session":
        return f"session_window({time}, '{window.size}')"
    slide = f", '{window.advance}'" if window.advance else ""
    return f"window({time}, '{window.size}'{slide})"


def _time(alias: str, time_columns: Mapping[str, str]) -> str:
    for name, given in time_columns.items():
        if name.casefold() == alias.casefold():
            return given
    return f"{quoted(alias)}.{quoted(TIME_COLUMN)}"


def _with_bounds(text: str, origin: int | None, window: Window | None) -> tuple[_Part, ...]:
    """An expression with WINDOWSTART and WINDOWEND in Spark's form; its position is `origin`, or none."""
    if window is None:
        return ((text, origin),)
    tokens = tokenize(text)
    parts: list[_Part] = []
    copied = 0
    for at, token in enumerate(tokens):
        if token.upper not in WINDOW_BOUNDS or (at and tokens[at - 1].is_symbol(".")):
            continue
        parts.append((text[copied : token.start], None if origin is None else origin + copied))
        parts.append((window_bound(window, WINDOW_BOUNDS[token.upper]), None))
        copied = token.end
    return (*parts, (text[copied:], None if origin is None else origin + copied))


def _apply(query: Query, edits: list[_Edit]) -> Rewritten:
    """The edits sorted by position; those at one position in their given order.

    An edit inside a removed text (a WINDOWSTART in a dropped HAVING) is dropped, too.
    """
    text, (start, end) = query.text, query.span
    made: list[str] = []
    pieces: list[Piece] = []
    length = 0
    copied = start

    def add(part: str, origin: int, as_it_is: bool) -> None:
        nonlocal length
        if part:
            pieces.append(Piece(length, origin, as_it_is))
            made.append(part)
            length += len(part)

    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < copied:
            continue
        add(text[copied : edit.start], copied, True)
        # The words around a removed text must stay separate.
        for part, origin in edit.parts or ((" ", None),):
            add(part, edit.start if origin is None else origin, origin is not None)
        copied = edit.end
    add(text[copied:end], copied, True)
    pieces.append(Piece(length, end, True))
    return Rewritten("".join(made), query, Pieces(pieces))
