"""The shape of a query: its sources, its SELECTs with their clauses, and the clauses in it that are Penstock's own.

The query is Spark's, so whatever is not understood here is let through; only Penstock's own clauses (WINDOW
TUMBLING …, WITHIN, PARTITION BY, EMIT) and brackets that do not match are refused. It is read by its words, not as
sqlglot's tree, because every part needs its place, and a query that sqlglot cannot read may still be right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from penstock.sql.cursor import Cursor
from penstock.sql.durations import duration
from penstock.sql.errors import BadSyntax, Place, did_you_mean
from penstock.sql.expressions import has_aggregate, output_name
from penstock.sql.statements import Emit, Query, SelectPart, Source, Span, Window, WindowMark, Within
from penstock.sql.tokens import Token

_DEEPEST = 60
_OPENING = {"(": ")", "[": "]", "{": "}"}
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES")
_WINDOWS = ("TUMBLING", "HOPPING", "SESSION")
_SET_OPERATORS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
_JOIN_WORDS = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "LATERAL")
_BY_CLAUSES = ("GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "PARTITION")
_WORD_CLAUSES = ("WHERE", "HAVING", "LIMIT", "OFFSET", "QUALIFY")
_NO_ALIAS = frozenset(
    (
        *_SET_OPERATORS,
        *_JOIN_WORDS,
        *_WORD_CLAUSES,
        "JOIN",
        "ON",
        "USING",
        "FROM",
        "SELECT",
        "TABLESAMPLE",
        "PIVOT",
    )
) | {"UNPIVOT", "FOR", "AS", "WITH"}
_MARKS = {"WINDOWSTART": "start", "WINDOW_START": "start", "WINDOWEND": "end", "WINDOW_END": "end"}
_FILE_FORMATS = ("delta", "parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryfile")


@dataclass(slots=True)
class _Select:
    """A SELECT while it is read."""

    outermost: bool
    aliases: list[str] = field(default_factory=list)
    window: Window | None = None
    marks: list[WindowMark] = field(default_factory=list)
    projections: list[tuple[str | None, Span]] = field(default_factory=list)
    projection_end: int = 0
    group_by: list[Span] = field(default_factory=list)
    group_end: int = 0
    having: Span | None = None
    having_clause: Span | None = None
    aggregates: bool = False

    def freeze(self) -> SelectPart:
        return SelectPart(
            self.outermost,
            self.aliases[0] if self.aliases else None,
            self.window,
            tuple(self.marks) if self.window else (),
            tuple(self.projections),
            self.projection_end,
            tuple(self.group_by),
            self.group_end,
            self.having,
            self.having_clause,
            self.aggregates,
        )


@dataclass(frozen=True, slots=True)
class _Clause:
    kind: str
    """`SELECT`, `FROM`, `WHERE`, `GROUP`, … in capitals; TUMBLING, HOPPING, SESSION for those windows."""
    start: int
    """Index of its first word."""
    content: int
    """Index of what follows the words of the clause."""
    end: int


def read_query(text: str, tokens: list[Token], start: int, end: int) -> Query:
    """The query of `tokens[start:end]`, with its EMIT and LIMIT."""
    return _Reader(text, tokens, start, end).read()


def match_brackets(text: str, tokens: list[Token], start: int, end: int) -> dict[int, int]:
    """From the index of each opening bracket to that of its closing one."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for at in range(start, end):
        token = tokens[at]
        if token.kind != "symbol":
            continue
        if token.text in _OPENING:
            opened.append(at)
            if len(opened) > _DEEPEST:
                raise BadSyntax(
                    f"more than {_DEEPEST} brackets inside each other", Place.of(text, token.start)
                )
        elif token.text in ")]}":
            if not opened:
                raise BadSyntax(f"this {token.text} closes nothing", Place.of(text, token.start))
            if _OPENING[tokens[opened[-1]].text] != token.text:
                expected = _OPENING[tokens[opened[-1]].text]
                raise BadSyntax(f"expected {expected}, not `{token.text}`", Place.of(text, token.start))
            pairs[opened.pop()] = at
    if opened:
        token = tokens[opened[-1]]
        raise BadSyntax(f"this {token.text} is never closed", Place.of(text, token.start))
    return pairs


class _Reader:
    def __init__(self, text: str, tokens: list[Token], start: int, end: int) -> None:
        self.text = text
        self.tokens = tokens
        self.start = start
        self.end = end
        self.pairs = match_brackets(text, tokens, start, end)
        self.sources: list[Source] = []
        self.withins: list[Within] = []
        self.selects: list[_Select] = []
        self.cte_names: set[str] = set()
        self.union = False
        self.partition: _Clause | None = None
        self.limit: _Clause | None = None

    # The whole

    def read(self) -> Query:
        emit, end, limit_after = self._take_emit()
        self._refuse_inner_emit(end)
        if end <= self.start:
            self._fail(self.start, "expected a SELECT before EMIT")
        self._query(self.start, end, frozenset(), outermost=True)
        limit, limit_clause = self._limit(limit_after)
        outer = next((each for each in self.selects if each.outermost), _Select(True))
        return Query(
            text=self.text,
            span=(self.tokens[self.start].start, self.tokens[end - 1].end),
            sources=tuple(self.sources),
            window=outer.window,
            withins=tuple(self.withins),
            partition_by=self._content_span(self.partition) if self.partition else None,
            partition_clause=self._clause_span(self.partition) if self.partition else None,
            emit=emit,
            limit=limit,
            limit_clause=limit_clause,
            projection_end=outer.projection_end,
            having=outer.having,
            having_clause=outer.having_clause,
            group_by=tuple(outer.group_by),
            group_end=outer.group_end,
            aggregates=any(each.aggregates for each in self.selects if each.outermost),
            union=self.union,
            columns=frozenset(t.text.casefold() for t in self.tokens[self.start : end] if t.names),
            projections=tuple(outer.projections),
            selects=tuple(each.freeze() for each in self.selects),
            cte_names=frozenset(self.cte_names),
        )

    def _take_emit(self) -> tuple[Emit | None, int, _Clause | None]:
        """EMIT CHANGES [LIMIT n] at the end: what it is, where the query ends before it, and the LIMIT after it."""
        end = self.end
        limit: _Clause | None = None
        if end - 4 >= self.start and self._word(end - 2) == "LIMIT" and self._word(end - 4) == "EMIT":
            limit = _Clause("LIMIT", end - 2, end - 1, end)
            end -= 2
        if end - 1 > self.start and self._word(end - 1) == "EMIT" and self._may_begin_clause(end - 1):
            raise BadSyntax(
                "expected CHANGES or FINAL after EMIT", Place.of(self.text, self.tokens[end - 1].end)
            )
        if end - 2 < self.start or self.tokens[end - 1].kind != "word":
            return None, self.end, None
        last, before = self._word(end - 1), self._word(end - 2)
        if before == "EMIT" and self._may_begin_clause(end - 2):
            if last == "CHANGES":
                return "changes", end - 2, limit
            if last == "FINAL":
                return "final", end - 2, limit
            near = did_you_mean(last, ("CHANGES", "FINAL"))
            self._fail(
                end - 1, f"expected CHANGES or FINAL after EMIT, not `{self.tokens[end - 1].text}`{near}"
            )
        if (
            last in ("CHANGES", "FINAL")
            and did_you_mean(before, ("EMIT",))
            and self._may_begin_clause(end - 2)
        ):
            self._fail(
                end - 2,
                f"expected EMIT {last}, not `{self.tokens[end - 2].text} {last}`; did you mean `EMIT`?",
            )
        return None, self.end, None

    def _refuse_inner_emit(self, end: int) -> None:
        for at in range(self.start + 1, end - 1):
            if (
                self._word(at) == "EMIT"
                and self._word(at + 1) in ("CHANGES", "FINAL")
                and self._may_begin_clause(at)
            ):
                self._fail(at, f"EMIT {self._word(at + 1)} stands at the end of the whole statement")

    def _limit(self, after_emit: _Clause | None) -> tuple[int | None, Span | None]:
        clause = after_emit or self.limit
        if clause is None:
            return None, None
        token = self.tokens[clause.content] if clause.content < clause.end else None
        whole = token is not None and clause.end - clause.content == 1 and token.kind == "number"
        if token is None or not whole or not (token.text.isascii() and token.text.isdigit()):
            if after_emit is None:
                return None, None
            self._fail(clause.content, "expected a whole number after LIMIT")
        if len(token.text) > 18:
            self._fail(clause.content, "this LIMIT is too large")
        return int(token.text), self._clause_span(clause)

    # Queries and SELECTs

    def _query(self, start: int, end: int, ctes: frozenset[str], *, outermost: bool) -> None:
        if self._word(start) == "WITH":
            start, ctes = self._common_tables(start, end, ctes)
        begin = start
        at = start
        while at < end:
            if self._sets_apart(at):
                if outermost:
                    self.union = True
                self._branch(begin, at, ctes, outermost)
                at += 1
                while at < end and self._word(at) in ("ALL", "DISTINCT", "BY", "NAME"):
                    at += 1
                begin = at
                continue
            at = self._after(at)
        self._branch(begin, end, ctes, outermost)

    def _sets_apart(self, at: int) -> bool:
        """Here is a UNION or its like, and not `* EXCEPT (a, b)`."""
        if self._word(at) not in _SET_OPERATORS or not self._may_begin_clause(at):
            return False
        following = at + 1
        while following < self.end and self._word(following) in ("ALL", "DISTINCT", "BY", "NAME"):
            following += 1
        while following < self.end and self.tokens[following].is_symbol("("):
            following += 1
        return following < self.end and self._word(following) in (*_QUERY_WORDS, "TABLE")

    def _common_tables(self, start: int, end: int, ctes: frozenset[str]) -> tuple[int, frozenset[str]]:
        at = start + 1
        recursive = self._word(at) == "RECURSIVE"
        at += recursive
        while at < end and self.tokens[at].names:
            name = self.tokens[at].text.casefold()
            at += 1
            while at < end and not self.tokens[at].is_symbol("(") and self._word(at) != "AS":
                at += 1
            if at < end and self.tokens[at].is_symbol("("):
                at = self.pairs[at] + 1
            while at < end and not self.tokens[at].is_symbol("("):
                at += 1
            if at >= end:
                break
            self._query(at + 1, self.pairs[at], ctes | {name} if recursive else ctes, outermost=False)
            ctes |= {name}
            self.cte_names.add(name)
            at = self.pairs[at] + 1
            if at < end and self.tokens[at].is_symbol(","):
                at += 1
            else:
                break
        return at, ctes

    def _branch(self, start: int, end: int, ctes: frozenset[str], outermost: bool) -> None:
        if start >= end:
            return
        if self.tokens[start].is_symbol("("):
            close = self.pairs[start]
            self._query(start + 1, close, ctes, outermost=outermost)
            select = _Select(False)
            for clause in self._clauses(close + 1, end):
                self._note_clause(clause, select, ctes, outermost)
            return
        select = _Select(outermost)
        self.selects.append(select)
        clauses = self._clauses(start, end)
        for clause in clauses:
            self._note_clause(clause, select, ctes, outermost)
        before_group = [
            c for c in clauses if c.kind in ("SELECT", "FROM", "LATERAL", "WHERE", "GROUP", *_WINDOWS)
        ]
        if not select.group_by and before_group:
            select.group_end = self.tokens[max(c.end for c in before_group) - 1].end
        self._check_window(select, clauses)

    def _check_window(self, select: _Select, clauses: list[_Clause]) -> None:
        if select.window is None:
            return
        place = Place.of(self.text, select.window.span[0])
        if not select.aggregates:
            raise BadSyntax("WINDOW needs a GROUP BY or an aggregate such as count(*) in its SELECT", place)
        group = next((c for c in clauses if c.kind == "GROUP"), None)
        if group and self._word(group.content) == "ALL" and group.end - group.content == 1:
            self._fail(group.content, "with WINDOW, GROUP BY names its columns; it cannot be ALL")
        if not select.aliases:
            raise BadSyntax("WINDOW needs a stream after FROM", place)

    def _clauses(self, start: int, end: int) -> list[_Clause]:
        clauses: list[_Clause] = []
        kind, first, content = "", start, start
        at = start
        while at < end:
            found = self._clause_at(at, end, kind)
            if found is None:
                at = self._after(at)
                continue
            if first < at:
                clauses.append(_Clause(kind, first, content, at))
            kind, words = found
            first, content = at, at + words
            at = content
        if first < end:
            clauses.append(_Clause(kind, first, content, end))
        return clauses

    def _clause_at(self, at: int, end: int, current: str) -> tuple[str, int] | None:
        """The clause that begins here, and how many words it begins with."""
        word = self._word(at)
        if not word or not self._may_begin_clause(at):
            return None
        following = self._word(at + 1) if at + 1 < end else ""
        if word == "SELECT" and not current:
            return "SELECT", 2 if following in ("DISTINCT", "ALL") else 1
        if word == "FROM" and current in ("", "SELECT"):
            # `a IS [NOT] DISTINCT FROM b`
            return (
                None
                if self._word(at - 1) == "DISTINCT"
                and at - 1 > self.start
                and current == "SELECT"
                and self._word(at - 2) in ("IS", "NOT")
                else ("FROM", 1)
            )
        if word in _BY_CLAUSES and following == "BY":
            return word, 2
        if word in _WORD_CLAUSES and self._operand_follows(at, end):
            return word, 1
        if word == "LATERAL" and following == "VIEW":
            return "LATERAL", 2
        if word == "WINDOW" and current != "SELECT" and following and at + 2 < end:
            return self._window_at(at, following)
        return None

    def _window_at(self, at: int, following: str) -> tuple[str, int] | None:
        opens = self.tokens[at + 2].is_symbol("(")
        if following in _WINDOWS and opens:
            return following, 2
        if self._word(at + 2) == "AS":
            return "NAMED WINDOW", 1
        if opens:
            near = did_you_mean(following, _WINDOWS)
            self._fail(
                at + 1, f"expected TUMBLING, HOPPING or SESSION, not `{self.tokens[at + 1].text}`{near}"
            )
        return None

    def _operand_follows(self, at: int, end: int) -> bool:
        """After `limit` stands what can be limited to: it is the clause, and not a column of this name."""
        if at + 1 >= end:
            return False
        token = self.tokens[at + 1]
        return token.kind != "symbol" or token.text in "([-+~!:?"

    def _note_clause(self, clause: _Clause, select: _Select, ctes: frozenset[str], outermost: bool) -> None:
        match clause.kind:
            case "SELECT":
                self._projections(clause, select, ctes)
            case "FROM":
                self._relations(clause.content, clause.end, ctes, select)
                return
            case "TUMBLING" | "HOPPING" | "SESSION":
                if select.window is not None:
                    self._fail(clause.start, "a SELECT has one WINDOW")
                select.window = self._window(clause)
                return
            case "GROUP":
                self._group_by(clause, select)
            case "HAVING":
                select.having = self._content_span(clause)
                select.having_clause = self._clause_span(clause)
                select.aggregates |= has_aggregate(self.tokens, clause.content, clause.end, self.pairs)
            case "PARTITION":
                self._partition_by(clause, outermost)
            case "LIMIT" if outermost:
                self.limit = clause
            case _:
                pass
        self._expressions(clause.content, clause.end, ctes, select)

    def _partition_by(self, clause: _Clause, outermost: bool) -> None:
        if not outermost:
            self._fail(clause.start, "PARTITION BY stands at the end of the whole query (or inside OVER)")
        if self.partition is not None:
            self._fail(clause.start, "a query has one PARTITION BY")
        if clause.content >= clause.end:
            self._fail(clause.content, "expected a column or an expression after PARTITION BY")
        self.partition = clause

    def _projections(self, clause: _Clause, select: _Select, ctes: frozenset[str]) -> None:
        select.aggregates |= clause.content - clause.start == 2 and self._word(clause.start + 1) == "DISTINCT"
        for start, end in self._items(clause.content, clause.end):
            span = (self.tokens[start].start, self.tokens[end - 1].end)
            name = output_name(self.text, self.tokens, start, end)
            if end - start == 1 and self._word(start) in _MARKS:
                name = f"window_{_MARKS[self._word(start)]}"
            select.projections.append((name, span))
            select.aggregates |= has_aggregate(self.tokens, start, end, self.pairs)
        select.projection_end = self.tokens[clause.end - 1].end

    def _group_by(self, clause: _Clause, select: _Select) -> None:
        select.aggregates = True
        end = clause.end
        at = clause.content
        while at < clause.end:
            if self._word(at) in ("WITH", "GROUPING") and self._word(at + 1) in ("ROLLUP", "CUBE", "SETS"):
                end = at
                break
            at = self._after(at)
        for first, last in self._items(clause.content, end):
            span = (self.tokens[first].start, self.tokens[last - 1].end)
            ordinal = self.tokens[first].text
            if (
                last - first == 1
                and self.tokens[first].kind == "number"
                and ordinal.isascii()
                and ordinal.isdigit()
            ):
                if 0 < int(ordinal[:6]) <= len(select.projections):
                    span = select.projections[int(ordinal[:6]) - 1][1]
            select.group_by.append(span)
        if select.group_by:
            select.group_end = self.tokens[end - 1].end

    def _items(self, start: int, end: int) -> list[tuple[int, int]]:
        """What the commas outside of brackets set apart."""
        items: list[tuple[int, int]] = []
        first = at = start
        while at < end:
            if self.tokens[at].is_symbol(","):
                items.append((first, at))
                first = at + 1
            at = self._after(at)
        items.append((first, end))
        return [(a, b) for a, b in items if a < b]

    def _expressions(self, start: int, end: int, ctes: frozenset[str], select: _Select) -> None:
        """Queries inside of expressions, and the names of the window's bounds."""
        at = start
        while at < end:
            token = self.tokens[at]
            if token.kind == "symbol" and token.text == "(" and self._is_query(at):
                self._query(at + 1, self.pairs[at], ctes, outermost=False)
                at = self.pairs[at] + 1
                continue
            if token.upper in _MARKS and self._names_bound(at):
                bare = self._is_item(at)
                bound = _MARKS[token.upper]
                select.marks.append(
                    WindowMark("start" if bound == "start" else "end", (token.start, token.end), bare)
                )
            at += 1

    def _names_bound(self, at: int) -> bool:
        before = self.tokens[at - 1] if at > self.start else None
        after = self.tokens[at + 1] if at + 1 < self.end else None
        if before is not None and (before.is_symbol(".") or before.upper == "AS"):
            return False
        return after is None or not (after.is_symbol(".") or after.is_symbol("("))

    def _is_item(self, at: int) -> bool:
        """It stands alone between commas of a SELECT list."""
        before = self.tokens[at - 1] if at > self.start else None
        after = self.tokens[at + 1] if at + 1 < self.end else None
        begins = before is not None and (
            before.is_symbol(",") or before.upper in ("SELECT", "DISTINCT", "ALL")
        )
        return begins and (
            after is None or after.is_symbol(",") or after.is_symbol(")") or after.upper == "FROM"
        )

    # FROM

    def _relations(self, start: int, end: int, ctes: frozenset[str], select: _Select) -> None:
        at = self._relation(start, end, ctes, select)
        while at < end:
            token = self.tokens[at]
            if token.is_symbol(","):
                at = self._relation(at + 1, end, ctes, select)
            elif (joined := self._after_join(at, end)) is not None:
                at = self._joined(joined, end, ctes, select)
            elif token.is_symbol("(") and self._is_query(at):
                self._query(at + 1, self.pairs[at], ctes, outermost=False)
                at = self.pairs[at] + 1
            else:
                at = self._after(at)

    def _after_join(self, at: int, end: int) -> int | None:
        """The index after `[LEFT OUTER …] JOIN`, if that is here."""
        while at < end and self._word(at) in _JOIN_WORDS:
            at += 1
        return at + 1 if at < end and self._word(at) == "JOIN" else None

    def _relation(self, at: int, end: int, ctes: frozenset[str], select: _Select) -> int:
        """Reads a relation and its alias; gives the index after it."""
        while at < end and self._word(at) == "LATERAL":
            at += 1
        if at >= end:
            self._fail(at, "expected the name of a stream or table")
        token = self.tokens[at]
        if token.is_symbol("("):
            close = self.pairs[at]
            if not self._is_query(at):
                self._relations(at + 1, close, ctes, select)
                return self._alias(close + 1, end)[1]
            self._query(at + 1, close, ctes, outermost=False)
            alias, after = self._alias(close + 1, end)
            if alias:
                select.aliases.append(alias)
            return after
        if not token.names or token.upper == "VALUES":
            return self._after(at)
        if token.upper in _NO_ALIAS:
            self._fail(at, f"expected the name of a stream or table, not `{token.text}`")
        cursor = Cursor(self.text, self.tokens, at, end)
        name, span = cursor.name("the name of a stream or table")
        after = cursor.position
        if after < end and self.tokens[after].is_symbol("("):  # a function that gives a table
            self._expressions(after + 1, self.pairs[after], ctes, select)
            return self._alias(self.pairs[after] + 1, end)[1]
        alias, following = self._alias(after, end)
        last = self.tokens[after - 1]
        alias = alias or last.text
        select.aliases.append(alias)
        first = token.text.casefold()
        outside = after - at > 1 and first in _FILE_FORMATS and last.kind == "quoted"
        if not outside and not (after - at == 1 and first in ctes):
            self.sources.append(Source(name, alias, span))
        return following

    def _alias(self, at: int, end: int) -> tuple[str | None, int]:
        alias: str | None = None
        if at < end and self._word(at) == "AS" and at + 1 < end and self.tokens[at + 1].names:
            alias, at = self.tokens[at + 1].text, at + 2
        elif at < end and self.tokens[at].names and self._can_be_alias(at, end):
            alias, at = self.tokens[at].text, at + 1
        else:
            return None, at
        if at < end and self.tokens[at].is_symbol("("):
            at = self.pairs[at] + 1
        return alias, at

    def _can_be_alias(self, at: int, end: int) -> bool:
        token = self.tokens[at]
        if token.kind == "quoted":
            return True
        if token.upper == "WITHIN":
            return not self._is_within(at, end)
        if token.upper in ("VERSION", "TIMESTAMP", "SYSTEM_TIME") and self._word(at + 1) == "AS":
            return False
        return token.upper not in _NO_ALIAS

    def _is_within(self, at: int, end: int) -> bool:
        if self._word(at) != "WITHIN" or at + 1 >= end:
            return False
        token = self.tokens[at + 1]
        return token.kind in ("number", "string") or token.is_symbol("(") or token.upper == "INTERVAL"

    def _joined(self, at: int, end: int, ctes: frozenset[str], select: _Select) -> int:
        known = list(select.aliases)
        at = self._relation(at, end, ctes, select)
        within: tuple[str, str, str | None, Span] | None = None
        if self._is_within(at, end):
            within, at = self._within(at, end)
        if at < end and self._word(at) == "ON":
            start = at + 1
            at = self._end_of_condition(start, end)
            self._expressions(start, at, ctes, select)
            if within is not None:
                if start >= at:
                    self._fail(start, "expected the condition of the join after ON")
                condition = (self.tokens[start].start, self.tokens[at - 1].end)
                right = select.aliases[-1] if len(select.aliases) > len(known) else None
                left = self._left_of(start, at, known)
                if right is None or left is None:
                    raise BadSyntax("WITHIN joins two named streams", Place.of(self.text, within[3][0]))
                before, after, grace, span = within
                self.withins.append(Within(left, right, before, after, grace, span, condition))
        elif within is not None:
            self._fail(at, "expected ON and the condition of the join after WITHIN")
        return at

    def _left_of(self, start: int, end: int, known: list[str]) -> str | None:
        """Whose time counts: what the condition names of the relations before; otherwise the first of them."""
        folded = {alias.casefold(): alias for alias in known}
        for at in range(start, end - 1):
            if self.tokens[at].names and self.tokens[at + 1].is_symbol("."):
                if (alias := folded.get(self.tokens[at].text.casefold())) is not None:
                    return alias
        return known[0] if known else None

    def _end_of_condition(self, at: int, end: int) -> int:
        while at < end and not self.tokens[at].is_symbol(","):
            word = self._word(at)
            if word == "JOIN" or (word in _JOIN_WORDS and self._after_join(at, end) is not None):
                break
            at = self._after(at)
        return at

    # Penstock's own clauses

    def _within(self, at: int, end: int) -> tuple[tuple[str, str, str | None, Span], int]:
        cursor = Cursor(self.text, self.tokens, at, end)
        first = cursor.next()
        if cursor.take_symbol("("):
            before = duration(cursor, positive=False)
            after = before
            if cursor.take_symbol(","):
                after = duration(cursor, positive=False)
            cursor.expect_symbol(")", ") or a second time: WITHIN (before, after)")
        else:
            before = after = duration(cursor, positive=False)
        grace: str | None = None
        if cursor.take("GRACE"):
            cursor.expect("PERIOD")
            grace = duration(cursor, positive=False).text
        span = (first.start, self.tokens[cursor.position - 1].end)
        if not cursor.at("ON"):
            cursor.fail("ON and the condition of the join", ("ON",) if grace else ("ON", "GRACE PERIOD"))
        return (before.text, after.text, grace, span), cursor.position

    def _window(self, clause: _Clause) -> Window:
        opening = clause.content
        close = self.pairs[opening]
        span = (self.tokens[clause.start].start, self.tokens[close].end)
        if close + 1 < clause.end:
            expected = "WHERE, GROUP BY, HAVING, PARTITION BY or EMIT"
            Cursor(self.text, self.tokens, close + 1, clause.end).fail(
                expected, ("WHERE", "GROUP", "HAVING", "PARTITION", "EMIT", "LIMIT")
            )
        cursor = Cursor(self.text, self.tokens, opening + 1, close)
        advance: str | None = None
        if clause.kind == "SESSION":
            size = duration(cursor, positive=True)
        else:
            cursor.expect("SIZE")
            size = duration(cursor, positive=True)
        if clause.kind == "HOPPING":
            cursor.expect_symbol(",", "a comma and ADVANCE BY")
            cursor.expect("ADVANCE")
            cursor.expect("BY")
            step = duration(cursor, positive=True)
            if step.microseconds > size.microseconds:
                place = Place.of(self.text, step.span[0])
                raise BadSyntax(f"ADVANCE BY {step.text} is longer than the window's SIZE {size.text}", place)
            advance = step.text
        grace: str | None = None
        if cursor.take_symbol(","):
            if cursor.at("RETENTION"):
                cursor.fail(
                    "GRACE PERIOD", hint=" (how long windows are kept is the retention of the output's topic)"
                )
            cursor.expect("GRACE")
            cursor.expect("PERIOD")
            grace = duration(cursor, positive=False).text
        if not cursor.done:
            cursor.fail(") after the GRACE PERIOD" if grace else "a comma and GRACE PERIOD, or )", ("GRACE",))
        kind = clause.kind.lower()
        assert kind == "tumbling" or kind == "hopping" or kind == "session"
        return Window(kind, size.text, advance, grace, span)

    # Words and places

    def _word(self, at: int) -> str:
        return self.tokens[at].upper if self.start <= at < self.end else ""

    def _after(self, at: int) -> int:
        """The index after this word, or after the bracket that opens here."""
        return self.pairs[at] + 1 if at in self.pairs else at + 1

    def _may_begin_clause(self, at: int) -> bool:
        """Not a field (`a.limit`) and not an alias (`AS limit`)."""
        if at <= self.start:
            return True
        before = self.tokens[at - 1]
        return not before.is_symbol(".") and before.upper != "AS"

    def _is_query(self, opening: int) -> bool:
        at = opening + 1
        while at < self.end and self.tokens[at].is_symbol("("):
            at += 1
        return self._word(at) in _QUERY_WORDS and not self._is_function(at)

    def _is_function(self, at: int) -> bool:
        return (
            self._word(at) in ("WITH", "FROM") and self.tokens[at + 1].is_symbol("(")
            if at + 1 < self.end
            else False
        )

    def _content_span(self, clause: _Clause) -> Span:
        first = (
            self.tokens[clause.content].start
            if clause.content < clause.end
            else self.tokens[clause.end - 1].end
        )
        return first, self.tokens[clause.end - 1].end

    def _clause_span(self, clause: _Clause) -> Span:
        return self.tokens[clause.start].start, self.tokens[clause.end - 1].end

    def _fail(self, at: int, message: str) -> NoReturn:
        offset = self.tokens[at].start if at < self.end else self.tokens[self.end - 1].end
        raise BadSyntax(message, Place.of(self.text, offset))
