"""Plans a query before Spark analyses it: how its rows are written, its key, and the columns to add.

Pure: takes a query and the relations that it reads, returns a `Shape`. Columns added for the key and for
HAVING begin with `__penstock_` and never reach an output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.sql.catalog.catalog import Kind, Mode, Relation
from penstock.sql.errors import Clash, Place
from penstock.sql.language.durations import length
from penstock.sql.language.expressions import without_alias
from penstock.sql.language.statements import Pattern, Query, Span
from penstock.sqltext.identifiers import quoted

KEY_PREFIX = "__penstock_key_"
KEEP = "__penstock_keep"
TIME = "__penstock_time"
LONG_ENOUGH = "24 hours"
"""The default watermark delay where Spark needs one."""
_WINDOW_CALL = re.compile(r"\b(session_)?window\s*\(", re.IGNORECASE)
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Shape:
    """How a query is run."""

    mode: Mode
    streams: tuple[str, ...]
    """The sources that are read as streams; the others are read as they are at the time."""
    watermarks: Mapping[str, str]
    """By the name of a streaming source."""
    extra: tuple[tuple[str, str | Span], ...]
    """Columns to add: name, and expression or the place of one in the query's text."""
    key: tuple[str, ...]
    """Expressions of the key by the names of their added columns; empty: no key."""
    drop_having: bool = False
    window_columns: bool = False
    """Whether the bounds of windows are added to the columns."""
    key_names: tuple[str, ...] = ()
    """Of the parts of a key that has several."""


def text_of(query: Query, span: Span) -> str:
    return query.text[span[0] : span[1]]


def place_of(query: Query, offset: int) -> Place:
    return Place.of(query.text, offset)


def shape(query: Query, sources: Mapping[str, Relation], kind: Kind | None, *, push: bool = False) -> Shape:
    """How to run the query of a CREATE STREAM or TABLE, (None) of an INSERT, or with `push` of a SELECT."""
    streams = tuple(name for name, each in sources.items() if each.kind == "stream")
    if not streams:
        if push and len(sources) == 1 and next(iter(sources.values())).topic is not None:
            streams = tuple(sources)  # the changes of one table
        elif kind == "table":
            return Shape("refresh", (), {}, (), (), window_columns=True)
        elif push:
            raise Clash("EMIT CHANGES needs a stream, or one table whose changes are shown", _start(query))
        else:
            raise Clash(
                "The query reads no stream and would never emit. Use CREATE TABLE … AS.",
                _start(query),
            )
    _check_patterns(query, sources, streams)
    windowed = query.first.window is not None or _calls_window(query)
    if kind != "table" and not push and query.aggregates and not windowed:
        what = "an aggregate without a window has no last value"
        raise Clash(f"{what}: CREATE TABLE … AS keeps the newest one, or add a WINDOW", _start(query))
    mode = _mode(query, kind, push)
    extra: list[tuple[str, str | Span]] = []
    drop_having = kind == "table" and mode == "update" and query.first.having is not None and not query.union
    if drop_having:
        assert query.first.having is not None
        extra.append((KEEP, query.first.having))
    # The key of a table is among its columns; that of a stream may be anything.
    key = () if push or kind == "table" else _key(query, sources)
    if not push and kind != "table":
        time = _time(query, sources)
        extra += [(TIME, time)] if time is not None else []
    written = _written_key(query) if key else []
    extra += [(f"{KEY_PREFIX}{at}", written[at] if written else each) for at, each in enumerate(key)]
    return Shape(
        mode,
        streams,
        _watermarks(query, sources, streams, mode),
        tuple(extra),
        tuple(f"{KEY_PREFIX}{at}" for at in range(len(key))),
        drop_having,
        not push,
        tuple(_part_name(each, at) for at, each in enumerate(key)),
    )


def _check_patterns(query: Query, sources: Mapping[str, Relation], streams: tuple[str, ...]) -> None:
    """What limits the state of a continuous MATCH_RECOGNIZE, and what it cannot be combined with."""
    for pattern in query.patterns:
        if pattern.source not in streams:
            continue
        place = place_of(query, pattern.pattern[1])
        if len(query.sources) > 1 or query.aggregates or any(each.aggregates for each in query.selects):
            raise Clash(
                "MATCH_RECOGNIZE of a stream cannot be combined with other clauses. Write the matches to a "
                "stream first (CREATE STREAM … AS).",
                place_of(query, pattern.span[0]),
            )
        if pattern.within is None:
            raise Clash(
                "how long may a match take? Its state has no end otherwise: PATTERN (…) WITHIN 1 HOUR", place
            )
        if pattern.grace is None and "watermark" not in sources[pattern.source].options:
            raise Clash(
                "how late may rows come? Rows wait that long for earlier ones: WITHIN … GRACE PERIOD 10 "
                f"SECONDS, or watermark = '10 seconds' of `{pattern.source}`",
                place,
            )


def one_row_pattern(query: Query) -> Pattern | None:
    """The MATCH_RECOGNIZE with a row for each match that the outermost SELECT reads."""
    first = next((each.source for each in query.selects if each.outermost), None)
    return next((each for each in query.patterns if each.alias == first and not each.all_rows), None)


def _start(query: Query) -> Place:
    return place_of(query, query.span[0])


def _calls_window(query: Query) -> bool:
    return bool(_WINDOW_CALL.search(text_of(query, query.span)))


def _mode(query: Query, kind: Kind | None, push: bool) -> Mode:
    aggregates = query.aggregates or any(each.aggregates for each in query.selects)
    if not aggregates or query.emit == "final" or (kind != "table" and not push):
        return "append"
    session = any(each.window is not None and each.window.kind == "session" for each in query.selects) or (
        query.first.window is not None and query.first.window.kind == "session"
    )
    # Spark has no update mode for session windows: they can merge, and it does not report which are gone.
    return "complete" if session else "update"


def _watermarks(
    query: Query, sources: Mapping[str, Relation], streams: tuple[str, ...], mode: Mode
) -> dict[str, str]:
    """The watermark delays: GRACE PERIOD, or the relation's own, or a day if Spark needs one.

    Spark has one watermark per query, which follows the slowest source: with several grace periods the
    longest counts, so that no record within any of them is dropped.
    """
    graces = _graces(query)
    # Without one Spark keeps windows and join state forever.
    selects = query.selects  # those of subqueries, CTEs and of a UNION are among them
    windowed = _calls_window(query) or any(each.window is not None for each in selects)
    aggregates = query.aggregates or any(each.aggregates for each in selects)
    needed = (
        len([each for each in query.sources if each.name in streams]) > 1  # also of one stream with itself
        or (mode != "complete" and windowed)
        or (mode == "append" and aggregates)
    )
    found: dict[str, str] = {}
    for name in streams:
        aliases = {each.alias for each in query.sources if each.name == name}
        own = sources[name].options.get("watermark")
        mine = [grace for alias, grace in graces if alias is None or alias in aliases]
        if mine:
            found[name] = max(mine, key=length)
        elif own is not None:
            found[name] = own
        elif graces:
            found[name] = max((grace for _, grace in graces), key=length)
        elif needed:
            found[name] = LONG_ENOUGH
    return found


def _graces(query: Query) -> list[tuple[str | None, str]]:
    """Every GRACE PERIOD of the query, and the source that it is about; None: a subquery, of any of them."""
    known = {each.alias for each in query.sources}
    found: list[tuple[str | None, str | None]] = [
        (side, each.grace) for each in query.withins for side in (each.left, each.right)
    ]
    found += [(each.source, each.window.grace) for each in query.selects if each.window is not None]
    found += [(each.alias, each.grace) for each in query.patterns]
    return [(alias if alias in known else None, grace) for alias, grace in found if grace is not None]


# Keys


def _key(query: Query, sources: Mapping[str, Relation]) -> tuple[str, ...]:
    """The expressions of the key: PARTITION BY, or GROUP BY, or the key of the source."""
    if query.partition_by is not None:
        return tuple(split_list(text_of(query, query.partition_by)))
    if query.first.group_by:
        return tuple(_grouped(query, span) for span in query.first.group_by)
    if (pattern := one_row_pattern(query)) is not None:
        return tuple(f"{{source}}.{quoted(name)}" for name, _ in pattern.partition_by)
    return () if query.aggregates or not _from_topics(query, sources) else ("{source}.`__key`",)


def _written_key(query: Query) -> list[Span]:
    """The positions of the key's expressions, without their names, for errors."""
    if query.partition_by is None:
        return [_without_alias(query, _item_of(query, span)) for span in query.first.group_by]
    spans, at = [], query.partition_by[0]
    for each in split_list(text_of(query, query.partition_by)):
        at = query.text.index(each, at)
        spans.append(_without_alias(query, (at, at + len(each))))
        at += len(each)
    return spans


def _without_alias(query: Query, span: Span) -> Span:
    return span[0], span[0] + len(without_alias(text_of(query, span)))


def _time(query: Query, sources: Mapping[str, Relation]) -> str | None:
    """The timestamp of written records: that of the source, or the end of the window."""
    if query.first.window is not None:
        return "WINDOWEND - INTERVAL '1' MILLISECOND"
    return None if query.aggregates or not _from_topics(query, sources) else "{source}.`__timestamp`"


def _part_name(expression: str, at: int) -> str:
    """The name of a part of a key: from its AS, its column, or its position."""
    found = re.search(r"(?:\s+AS\s+|^(?:[\w`{}]+\.)?)(`[^`]+`|\w+)\s*$", expression.strip(), re.IGNORECASE)
    return found.group(1).strip("`") if found else f"key_{at + 1}"


def _from_topics(query: Query, sources: Mapping[str, Relation]) -> bool:
    """Whether every outermost SELECT reads a topic first, so that its `__` columns can be asked for."""
    topics = {each.alias for each in query.sources if each.name in sources and sources[each.name].topic}
    outermost = [each for each in query.selects if each.outermost]
    return bool(outermost) and all(each.source in topics for each in outermost)


def _grouped(query: Query, span: Span) -> str:
    item = _item_of(query, span)
    text = text_of(query, item).strip()
    return text if item == span else without_alias(text)


def _item_of(query: Query, span: Span) -> Span:
    """The place of a GROUP BY item's expression; `GROUP BY 1` is the first of the SELECT list."""
    text = text_of(query, span).strip()
    if text.isdecimal() and 1 <= int(text) <= len(query.first.projections):
        return query.first.projections[int(text) - 1][1]
    return span


def key_columns(query: Query, sources: Mapping[str, Relation], columns: list[str]) -> tuple[str, ...]:
    """The columns of the output that are the key of the table.

    Raises Clash if a part of the key is missing: rows of the table could not be distinguished.
    """
    wanted: list[str] = []
    if query.partition_by is not None:
        wanted = split_list(text_of(query, query.partition_by))
    elif query.first.group_by:
        wanted = [_grouped(query, span) for span in query.first.group_by]
    elif not query.aggregates:
        pattern = one_row_pattern(query)
        wanted = [n for n, _ in pattern.partition_by] if pattern else _key_of_source(query, sources)
        if not wanted:
            raise Clash("A table needs a key. Add PARTITION BY at the end.", _start(query))
    found = [_selected(query, expression, columns) for expression in wanted]
    if query.first.window is not None:
        found += [name for name in columns if name.casefold() in WINDOW_COLUMNS and name not in found]
    return tuple(found)


def _key_of_source(query: Query, sources: Mapping[str, Relation]) -> list[str]:
    first = next((sources[each.name] for each in query.sources if each.name in sources), None)
    if first is None:
        return []
    return list(first.key_columns) or [each.name for each in first.columns if each.key]


def _selected(query: Query, expression: str, columns: list[str]) -> str:
    """The output column that has this expression or this name."""
    star = any(name == "*" for name, _ in query.first.projections)
    wanted = normal(expression)
    for same in (_same, _same_column):
        for at, (name, span) in enumerate(query.first.projections):
            if name == "*" or not same(without_alias(text_of(query, span)), name, wanted):
                continue
            if not star and at < len(columns):
                return columns[at]
            if name is not None:
                return next((each for each in columns if each.casefold() == name.casefold()), name)
    if star or not query.first.projections:
        for name in columns:
            if normal(name) == wanted.rpartition(".")[2]:
                return name
    raise Clash(
        f"`{expression}` is part of the table's key, and must be selected: add it to the SELECT list",
        place_of(query, query.first.projections[0][1][0]) if query.first.projections else _start(query),
    )


def _same(expression: str, name: str | None, wanted: str) -> bool:
    return normal(expression) == wanted or (name is not None and normal(name) == wanted)


def _same_column(expression: str, name: str | None, wanted: str) -> bool:
    """The same column, named with or without its relation."""
    plain = re.compile(r"[\w.]+")
    found = normal(expression)
    return bool(plain.fullmatch(found)) and found.rpartition(".")[2] == wanted.rpartition(".")[2]


def normal(expression: str) -> str:
    """An expression in one spelling: without spaces, case and quotes of names."""
    return re.sub(r"[\s`]+", "", expression).casefold()


def split_list(text: str) -> list[str]:
    """`a, f(b, c)` at its commas, but not at those in parentheses or quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _unnamed(query: Query, count: int) -> set[int]:
    """The places of expressions without a name. What stars bring has the names of columns."""
    given = [name for name, _ in query.first.projections]
    if "*" not in given:
        return {at for at in range(count) if at >= len(given) or given[at] is None}
    first = given.index("*")
    after = given[::-1].index("*")
    return {at for at in range(first) if given[at] is None} | {
        count - at for at in range(1, after + 1) if given[-at] is None
    }


def output_names(query: Query, columns: list[str]) -> list[str]:
    """Names for an output; columns without a name are called by their position, `col_2`."""
    unnamed = _unnamed(query, len(columns))
    names = []
    for at, column in enumerate(columns):
        plain = re.fullmatch(r"[A-Za-z_]\w*", column) is not None
        names.append(column if plain or at not in unnamed else f"col_{at + 1}")
    doubled = {name for name in names if [each.casefold() for each in names].count(name.casefold()) > 1}
    if doubled:
        raise Clash(
            f"Duplicate column `{min(doubled)}`. Rename it with AS.",
            _start(query),
        )
    return names
