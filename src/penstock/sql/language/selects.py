"""The structure of a query: its sources, its SELECTs and their clauses, including Penstock's own.

The query is Spark SQL, so anything unknown is passed on; only errors in Penstock's own clauses (WINDOW
TUMBLING …, WITHIN, PARTITION BY, EMIT) and unbalanced brackets are rejected. It is parsed from tokens and not
from sqlglot's tree, because every part needs its position, and Spark may accept what sqlglot cannot parse.
"""

from __future__ import annotations

from penstock.sql.errors import BadSyntax, Place, did_you_mean
from penstock.sql.language.expressions import has_aggregate, output_name
from penstock.sql.language.froms import SET_OPERATORS, WORD_CLAUSES, Froms, SelectDraft
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.keywords import WINDOW_BOUNDS
from penstock.sql.language.lexer.words import QUERY_WORDS, Clause
from penstock.sql.language.statements import Emit, Query, Span, WindowMark
from penstock.sql.language.windows import WINDOWS, read_window
from penstock.sqltext.tokens import Token

_BY_CLAUSES = ("GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "PARTITION")
_BEFORE_GROUP = ("SELECT", "FROM", "LATERAL", "WHERE", "GROUP", *WINDOWS)
_OF_UNION = ("ALL", "DISTINCT", "BY", "NAME")
_EMITTED: dict[str, Emit] = {"CHANGES": "changes", "FINAL": "final"}


def read_query(text: str, tokens: list[Token], start: int, end: int) -> Query:
    """The query of `tokens[start:end]`, with its EMIT and LIMIT."""
    return _Reader(text, tokens, start, end).read()


class _Reader(Froms):
    def __init__(self, text: str, tokens: list[Token], start: int, end: int) -> None:
        super().__init__(text, tokens, start, end)
        self.selects: list[SelectDraft] = []
        self.cte_names: set[str] = set()
        self.union = False
        self.partition: Clause | None = None
        self.limit: Clause | None = None
        self.bare: set[int] = set()
        """Indexes of words that are whole items of a SELECT list."""

    def read(self) -> Query:
        emit, end, limit_after = self._take_emit()
        self._refuse_inner_emit(end)
        self.query(self.start, end, frozenset(), outermost=True)
        limit, limit_clause = self._limit(limit_after)
        partition = self.partition
        return Query(
            text=self.text,
            span=self.span(self.start, end),
            sources=tuple(self.sources),
            withins=tuple(self.withins),
            patterns=tuple(self.patterns),
            partition_by=self.span(partition.content, partition.end) if partition else None,
            partition_clause=self.span(partition.start, partition.end) if partition else None,
            emit=emit,
            limit=limit,
            limit_clause=limit_clause,
            union=self.union,
            columns=frozenset(t.text.casefold() for t in self.tokens[self.start : end] if t.names),
            selects=tuple(each.done() for each in self.selects),
            cte_names=frozenset(self.cte_names),
        )

    # EMIT and LIMIT of the whole query

    def _take_emit(self) -> tuple[Emit | None, int, Clause | None]:
        """EMIT CHANGES [LIMIT n] at the end: its kind, the end of the query, and the LIMIT after it."""
        end = self.end
        limit: Clause | None = None
        if end - 4 > self.start and self.word(end - 2) == "LIMIT" and self.word(end - 4) == "EMIT":
            limit = Clause("LIMIT", end - 2, end - 1, end)
            end -= 2
        last, before = self.word(end - 1), self.word(end - 2)
        if last == "EMIT" and end - 1 > self.start and self.may_be_keyword(end - 1):
            self.fail(end, "expected CHANGES or FINAL after EMIT")
        if not last or end - 2 <= self.start or not self.may_be_keyword(end - 2):
            return None, self.end, None
        if before == "EMIT":
            if last not in _EMITTED:
                near = did_you_mean(last, _EMITTED)
                written = self.tokens[end - 1].text
                self.fail(end - 1, f"expected CHANGES or FINAL after EMIT, not `{written}`{near}")
            return _EMITTED[last], end - 2, limit
        if last in _EMITTED and before and (near := did_you_mean(before, ("EMIT",))):
            self.fail(end - 2, f"expected EMIT {last}, not `{self.tokens[end - 2].text}`{near}")
        return None, self.end, None

    def _refuse_inner_emit(self, end: int) -> None:
        for at in range(self.start + 1, end - 1):
            if self.word(at) == "EMIT" and self.word(at + 1) in _EMITTED and self.may_be_keyword(at):
                self.fail(at, f"EMIT {self.word(at + 1)} stands at the end of the whole statement")

    def _limit(self, after_emit: Clause | None) -> tuple[int | None, Span | None]:
        clause = after_emit or self.limit
        if clause is None:
            return None, None
        token = self.tokens[clause.content]
        whole = token.kind == "number" and token.text.isascii() and token.text.isdigit()
        if clause.end - clause.content != 1 or not whole or len(token.text) > 18:
            if after_emit is None:
                return None, None  # an expression, or an error that Spark reports
            self.fail(clause.content, f"expected a whole number after LIMIT, not `{token.text}`")
        return int(token.text), self.span(clause.start, clause.end)

    # Queries

    def query(self, start: int, end: int, ctes: frozenset[str], *, outermost: bool) -> None:
        if self.word(start) == "WITH":
            start, ctes = self._common_tables(start, end, ctes)
        begin = at = start
        while at < end:
            if not self._sets_apart(at):
                at = self.after(at)
                continue
            self.union |= outermost
            self._branch(begin, at, ctes, outermost)
            at += 1
            while at < end and self.word(at) in _OF_UNION:
                at += 1
            begin = at
        self._branch(begin, end, ctes, outermost)

    def _sets_apart(self, at: int) -> bool:
        """Whether a UNION or another set operation is here, and not `* EXCEPT (a, b)`."""
        if self.word(at) not in SET_OPERATORS or not self.may_be_keyword(at):
            return False
        at += 1
        while self.word(at) in _OF_UNION:
            at += 1
        while self.is_symbol(at, "("):
            at += 1
        return self.word(at) in (*QUERY_WORDS, "TABLE")

    def _common_tables(self, start: int, end: int, ctes: frozenset[str]) -> tuple[int, frozenset[str]]:
        """`WITH a AS (…), b (x, y) AS (…)`. A name is valid after its query, and in a recursive one also
        inside it.
        """
        at = start + 1
        recursive = self.word(at) == "RECURSIVE"
        at += recursive
        while at < end and self.tokens[at].names:
            name = self.tokens[at].text.casefold()
            while at < end and self.word(at) != "AS":
                at = self.after(at)
            while at < end and not self.is_symbol(at, "("):
                at += 1
            if at >= end:
                break
            self.query(at + 1, self.pairs[at], ctes | {name} if recursive else ctes, outermost=False)
            ctes |= {name}
            self.cte_names.add(name)
            at = self.pairs[at] + 1
            if not self.is_symbol(at, ","):
                break
            at += 1
        return at, ctes

    def _branch(self, start: int, end: int, ctes: frozenset[str], outermost: bool) -> None:
        if start >= end:
            return
        if self.is_symbol(start, "("):
            close = self.pairs[start]
            self.query(start + 1, close, ctes, outermost=outermost)
            for clause in self._clauses(close + 1, end):
                self._note(clause, SelectDraft(False), ctes, outermost)
            return
        select = SelectDraft(outermost)
        self.selects.append(select)
        clauses = self._clauses(start, end)
        # GROUP BY is parsed after the SELECT list, even if FROM comes first.
        for clause in sorted(clauses, key=lambda each: each.kind != "SELECT"):
            self._note(clause, select, ctes, outermost)
        before_group = [each.end for each in clauses if each.kind in _BEFORE_GROUP]
        if not select.group_by and before_group:
            select.group_end = self.tokens[max(before_group) - 1].end
        self._check_window(select, clauses)
        if outermost or self._is_relation(start):
            self._check_stars(clauses)

    def _is_relation(self, start: int) -> bool:
        """Whether the query is in the brackets of a FROM, JOIN or WITH, where outer columns are not
        visible.
        """
        return self.is_symbol(start - 1, "(") and self.word(start - 2) in ("FROM", "JOIN", "AS")

    def _check_stars(self, clauses: list[Clause]) -> None:
        """Rejects a star without FROM, for which Spark returns rows without columns."""
        if any(each.kind in ("FROM", "LATERAL", "PIPE") for each in clauses):
            return
        for clause in clauses:
            for first, after in self.items(clause.content, clause.end) if clause.kind == "SELECT" else ():
                star = first
                while star + 1 < after and self.tokens[star].names and self.is_symbol(star + 1, "."):
                    star += 2
                # After it only EXCEPT is SQL; Spark reports anything else: `* FORM t`.
                if self.is_symbol(star, "*") and (star + 1 == after or self.word(star + 1) == "EXCEPT"):
                    written = self.text[slice(*self.span(first, star + 1))]
                    self.fail(first, f"FROM is missing: `{written}` are the columns of what it names")

    def _check_window(self, select: SelectDraft, clauses: list[Clause]) -> None:
        if select.window is None:
            return
        place = Place.of(self.text, select.window.span[0])
        if not select.aggregates:
            raise BadSyntax("WINDOW needs a GROUP BY or an aggregate such as count(*) in its SELECT", place)
        if not select.aliases:
            raise BadSyntax("WINDOW needs a stream after FROM, or a subquery with an alias", place)
        for clause in clauses:
            for at in range(clause.content, clause.end) if clause.kind == "WHERE" else ():
                if any(mark.span == self.span(at, at + 1) for mark in select.marks):
                    self.fail(at, "WHERE comes before the windows are made: ask for their bounds in HAVING")
            if clause.kind != "GROUP":
                continue
            for first, after in self.items(clause.content, clause.end):
                if after - first == 1 and self.word(first) == "ALL":
                    self.fail(first, "with WINDOW, GROUP BY names its columns; it cannot be ALL")
                if after - first == 1 and self.word(first) in WINDOW_BOUNDS:
                    self.fail(first, "WINDOW groups by its bounds already: leave them out of GROUP BY")

    # Clauses

    def _clauses(self, start: int, end: int) -> list[Clause]:
        clauses: list[Clause] = []
        kind, first, content = "", start, start
        at = start
        while at < end:
            found = self._clause_at(at, end, kind)
            if found is None:
                at = self.after(at)
                continue
            if first < at:
                clauses.append(Clause(kind, first, content, at))
            kind, words = found
            first, content = at, at + words
            at = content
        if first < end:
            clauses.append(Clause(kind, first, content, end))
        return clauses

    def _clause_at(self, at: int, end: int, current: str) -> tuple[str, int] | None:
        """The clause that starts here, and the number of its keywords."""
        if self.is_symbol(at, "|") and self.is_symbol(at + 1, ">"):
            return "PIPE", 2
        word = self.word(at)
        if not word or not self.may_be_keyword(at):
            return None
        following = self.word(at + 1) if at + 1 < end else ""
        if word == "SELECT" and current in ("", "FROM"):
            return "SELECT", 2 if following in ("DISTINCT", "ALL") else 1
        if word == "FROM" and current in ("", "SELECT"):
            compares = self.word(at - 1) == "DISTINCT" and self.word(at - 2) in ("IS", "NOT")
            return None if compares and at - 2 > self.start else ("FROM", 1)
        if word in _BY_CLAUSES and following == "BY":
            return word, 2
        if word in WORD_CLAUSES and self._operand_follows(at, end):
            return word, 1
        if word == "LATERAL" and following == "VIEW":
            return "LATERAL", 2
        if word == "WINDOW" and current != "SELECT" and following and at + 2 < end:
            return self._window_at(at, following)
        return None

    def _window_at(self, at: int, following: str) -> tuple[str, int] | None:
        """Whether it is a window of Penstock's or Spark's `WINDOW name AS (…)`; otherwise the word is
        an alias.
        """
        opens = self.is_symbol(at + 2, "(")
        if following in WINDOWS and opens:
            return following, 2
        if self.word(at + 2) == "AS":
            return "NAMED WINDOW", 1
        if opens:
            near = did_you_mean(following, WINDOWS)
            written = self.tokens[at + 1].text
            self.fail(at + 1, f"expected TUMBLING, HOPPING or SESSION, not `{written}`{near}")
        return None

    def _operand_follows(self, at: int, end: int) -> bool:
        """Whether a possible limit follows `limit`, so that it is the clause and not a column of this
        name.
        """
        if at + 1 >= end:
            return False
        token = self.tokens[at + 1]
        return (token.kind != "symbol" or token.text in "([-+~!:?") and token.upper != "FROM"

    def _note(self, clause: Clause, select: SelectDraft, ctes: frozenset[str], outermost: bool) -> None:
        match clause.kind:
            case "SELECT":
                self._projections(clause, select)
            case "FROM":
                self.relations(clause.content, clause.end, ctes, select)
                return
            case "PIPE":
                self.joins(clause.content, clause.end, ctes, select)
                return
            case "TUMBLING" | "HOPPING" | "SESSION":
                self._window(clause, select)
                return
            case "GROUP":
                self._group_by(clause, select)
            case "HAVING":
                select.having = self.span(clause.content, clause.end)
                select.having_clause = self.span(clause.start, clause.end)
                select.aggregates |= has_aggregate(self.tokens, clause.content, clause.end, self.pairs)
            case "PARTITION":
                self._partition_by(clause, outermost)
            case "LIMIT" if outermost:
                self.limit = clause
            case _:
                pass
        self.expressions(clause.content, clause.end, ctes, select)

    def _window(self, clause: Clause, select: SelectDraft) -> None:
        if select.window is not None:
            self.fail(clause.start, "a SELECT has one WINDOW")
        close = self.pairs[clause.content]
        if close + 1 < clause.end:
            after = ("WHERE", "GROUP BY", "HAVING", "PARTITION BY", "EMIT")
            Cursor(self.text, self.tokens, close + 1, clause.end).fail(", ".join(after), after)
        inner = Cursor(self.text, self.tokens, clause.content + 1, close)
        select.window = read_window(inner, WINDOWS[clause.kind], self.span(clause.start, close + 1))

    def _partition_by(self, clause: Clause, outermost: bool) -> None:
        if not outermost:
            self.fail(clause.start, "PARTITION BY stands at the end of the whole query (or inside OVER)")
        if self.partition is not None:
            self.fail(clause.start, "a query has one PARTITION BY")
        if clause.content >= clause.end:
            self.fail(clause.content, "expected a column or an expression after PARTITION BY")
        self.partition = clause

    def _projections(self, clause: Clause, select: SelectDraft) -> None:
        select.aggregates |= self.word(clause.content - 1) == "DISTINCT"
        for start, end in self.items(clause.content, clause.end):
            name = output_name(self.text, self.tokens, start, end)
            if end - start == 1 and self.word(start) in WINDOW_BOUNDS:
                name = f"window_{WINDOW_BOUNDS[self.word(start)]}"
                self.bare.add(start)
            select.projections.append((name, self.span(start, end)))
            select.aggregates |= has_aggregate(self.tokens, start, end, self.pairs)
        select.projection_end = self.tokens[clause.end - 1].end

    def _group_by(self, clause: Clause, select: SelectDraft) -> None:
        select.aggregates = True
        end = at = clause.content
        while at < clause.end:
            if self.word(at) in ("WITH", "GROUPING") and self.word(at + 1) in ("ROLLUP", "CUBE", "SETS"):
                break
            end = at = self.after(at)
        select.group_by = [self.span(first, after) for first, after in self.items(clause.content, end)]
        if select.group_by:
            select.group_end = self.tokens[end - 1].end

    def expressions(self, start: int, end: int, ctes: frozenset[str], select: SelectDraft) -> None:
        """Collects queries in expressions, and the names of the window's bounds."""
        at = start
        while at < end:
            if self.opens_query(at):
                self.query(at + 1, self.pairs[at], ctes, outermost=False)
                at = self.pairs[at] + 1
                continue
            bound = WINDOW_BOUNDS.get(self.word(at))
            if bound is not None and self.may_be_keyword(at) and not self.is_symbol(at + 1, "."):
                select.marks.append(WindowMark(bound, self.span(at, at + 1), at in self.bare))
            at += 1
