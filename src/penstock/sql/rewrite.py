"""Spark's text of a query: Penstock's clauses taken out, and what they mean put in.

WINDOW becomes a `window(…)` or `session_window(…)` of the GROUP BY, WITHIN two bounds of time in the join's condition,
PARTITION BY, EMIT and the LIMIT of a push are left out, columns are added to the SELECT lists. Pure; every offset in
the new text has a place in the one that the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.sql.errors import Place
from penstock.sql.statements import Query, SelectPart, Span, Window
from penstock.sql.texts import Piece, Pieces
from penstock.sql.tokens import quote_name, tokenize

TIME_COLUMN = "__timestamp"
"""Of every view: when the record happened."""

_BOUNDS = {"WINDOWSTART": "start", "WINDOW_START": "start", "WINDOWEND": "end", "WINDOW_END": "end"}


@dataclass(frozen=True, slots=True)
class Rewritten:
    text: str
    query: Query
    pieces: Pieces

    def place(self, offset: int) -> Place:
        """Where in the user's text stands what Spark saw at this offset."""
        return Place.of(self.query.text, self.pieces.origin(max(0, min(offset, len(self.text)))))

    def place_at(self, line: int, column: int) -> Place:
        """The same for a line (from 1) and a column (from 0, as Spark's parser counts) of the new text."""
        before = self.text.split("\n")[: line - 1]
        return self.place(sum(len(each) + 1 for each in before) + column)


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


def to_spark(
    query: Query,
    *,
    time_columns: Mapping[str, str] = {},
    extra: Sequence[tuple[str, str | Span]] = (),
    drop_having: bool = False,
    window_columns: bool = False,
) -> Rewritten:
    """The query as Spark is to see it.

    `time_columns`: expressions of the event time by alias, where it is not the alias's `__timestamp`.
    `extra`: columns to add to the outermost SELECT (to all branches of a UNION): name and expression, or the place
    of an expression in the query's text, such as its HAVING. In an expression, `{source}` stands for the (quoted)
    alias of the SELECT's first relation, WINDOWSTART and WINDOWEND for the bounds of its window.
    `window_columns`: add `window_start` and `window_end` to a SELECT with a window that does not have them.
    """
    edits: list[_Edit] = []
    for part in query.selects:
        edits += _edits_of_select(query, part, time_columns, extra, drop_having, window_columns)
    for within in query.withins:
        left = _time(within.left, time_columns)
        right = _time(within.right, time_columns)
        edits.append(_Edit(*within.span, ""))
        edits.append(_Edit(within.condition[0], within.condition[0], "("))
        edits.append(
            _Edit(
                within.condition[1],
                within.condition[1],
                f") AND {right} >= {left} - INTERVAL {within.before} AND {right} <= {left} + INTERVAL {within.after}",
            )
        )
    for source in query.sources:
        written = query.text[source.span[0] : source.span[1]]
        if "." in source.name and written != quote_name(source.name):
            edits.append(_Edit(*source.span, quote_name(source.name)))
    if query.partition_clause is not None:
        edits.append(_Edit(*query.partition_clause, ""))
    if query.emit is not None and query.limit_clause is not None and query.limit_clause[1] <= query.span[1]:
        edits.append(_Edit(*query.limit_clause, ""))
    return _apply(query, edits)


def expression(query: Query, span: Span) -> str:
    """A part of the query's text, with WINDOWSTART and WINDOWEND as Spark knows them."""
    outer = next((part for part in query.selects if part.outermost), None)
    return _with_bounds(query.text[span[0] : span[1]], outer.window if outer else None)


def window_bound(window: Window, bound: str) -> str:
    """`window.start` or `session_window.end`"""
    return f"{'session_window' if window.kind == 'session' else 'window'}.{bound}"


def _edits_of_select(
    query: Query,
    part: SelectPart,
    time_columns: Mapping[str, str],
    extra: Sequence[tuple[str, str | Span]],
    drop_having: bool,
    window_columns: bool,
) -> list[_Edit]:
    edits: list[_Edit] = []
    if part.window is not None:
        call = _window_call(part.window, _time(part.source or "", time_columns))
        edits.append(_Edit(*part.window.span, ""))
        joint = ", " if part.group_by else " GROUP BY "
        edits.append(_Edit(part.group_end, part.group_end, joint + call))
        for mark in part.marks:
            named = f" AS window_{mark.bound}" if mark.bare else ""
            edits.append(_Edit(*mark.span, window_bound(part.window, mark.bound) + named))
    if not part.outermost:
        return edits
    added = list(extra)
    if window_columns and part.window is not None:
        names = {(name or "").casefold() for name, _ in part.projections}
        missing = [bound for bound in ("start", "end") if f"window_{bound}" not in names]
        added = [(f"window_{bound}", window_bound(part.window, bound)) for bound in missing] + added
    for name, value in added:
        text = value if isinstance(value, str) else query.text[value[0] : value[1]]
        text = _with_bounds(text, part.window).replace("{source}", quote_name(part.source or ""))
        edits.append(_Edit(part.projection_end, part.projection_end, f", {text} AS {quote_name(name)}"))
    if drop_having and part.having_clause is not None:
        edits.append(_Edit(*part.having_clause, ""))
    return edits


def _window_call(window: Window, time: str) -> str:
    if window.kind == "session":
        return f"session_window({time}, '{window.size}')"
    slide = f", '{window.advance}'" if window.advance else ""
    return f"window({time}, '{window.size}'{slide})"


def _time(alias: str, time_columns: Mapping[str, str]) -> str:
    for name, given in time_columns.items():
        if name.casefold() == alias.casefold():
            return given
    return f"{quote_name(alias)}.{quote_name(TIME_COLUMN)}"


def _with_bounds(text: str, window: Window | None) -> str:
    if window is None:
        return text
    tokens = tokenize(text)
    made: list[str] = []
    copied = 0
    for at, token in enumerate(tokens):
        if token.upper in _BOUNDS and not (
            at and (tokens[at - 1].is_symbol(".") or tokens[at - 1].upper == "AS")
        ):
            made += [text[copied : token.start], window_bound(window, _BOUNDS[token.upper])]
            copied = token.end
    return "".join((*made, text[copied:]))


def _apply(query: Query, edits: list[_Edit]) -> Rewritten:
    """The edits in the order of their places; those at one place in the order in which they were given.

    An edit inside of one that takes text out (a WINDOWSTART in a HAVING that is dropped) goes with it.
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
        # A word must not grow together with what follows where something was taken out.
        add(edit.text or " ", edit.start, False)
        copied = edit.end
    add(text[copied:end], copied, True)
    pieces.append(Piece(length, end, True))
    return Rewritten("".join(made), query, Pieces(pieces))
