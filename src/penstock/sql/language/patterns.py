"""MATCH_RECOGNIZE (…): its clauses, with the places of their expressions.

    [PARTITION BY column, …] ORDER BY column, … [MEASURES expression AS name, …]
    [ONE ROW PER MATCH | ALL ROWS PER MATCH]
    [AFTER MATCH SKIP PAST LAST ROW | TO NEXT ROW | TO [FIRST | LAST] variable]
    PATTERN (…) [WITHIN time [GRACE PERIOD time]] [SUBSET name = (variable, …), …]
    DEFINE variable AS condition, …

`penstock.spark.patterns` parses the expressions and the PATTERN.
"""

from __future__ import annotations

from typing import NoReturn

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.durations import duration
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.statements import Pattern, Span
from penstock.sqltext.tokens import Token

_CLAUSES = (
    ("PARTITION", "BY"), ("ORDER", "BY"), ("MEASURES",), ("ONE", "ROW"), ("ALL", "ROWS"), ("AFTER", "MATCH"),
    ("PATTERN", "("), ("SUBSET",), ("DEFINE",), ("WITHIN",),
)  # fmt: skip
_OPENING, _CLOSING = "([{", ")]}"


def read_pattern(cursor: Cursor, source: str, alias: str, *, aliased: bool, span: Span) -> Pattern:
    """Parses the content of the brackets of a MATCH_RECOGNIZE, which the cursor covers."""
    reader = _Reader(cursor)
    partition_by = reader.columns("PARTITION", ordered=False)
    order_by = reader.columns("ORDER", ordered=True)
    if not order_by:
        cursor.fail("ORDER BY and the event time", ("ORDER",))
    measures = reader.measures()
    all_rows = reader.all_rows()
    skip, skip_to = reader.skip()
    cursor.expect("PATTERN")
    pattern = reader.brackets()
    within, grace = reader.within()
    subsets = reader.subsets()
    define = reader.define()
    if not cursor.done:
        cursor.fail("a comma and another variable, or )")
    return Pattern(
        source, alias, aliased, span, partition_by, order_by, measures, pattern, define, subsets, all_rows,
        skip, skip_to, within, grace,
    )  # fmt: skip


class _Reader:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def _fail(self, message: str, token: Token) -> NoReturn:
        raise BadSyntax(message, Place.of(self._cursor.text, token.start))

    # -- expressions

    def _begins_clause(self, at: int) -> bool:
        tokens, end = self._cursor.tokens, self._cursor.end
        before = tokens[at - 1]
        if before.is_symbol(".") or before.upper == "AS":
            return False
        return any(
            all(
                at + ahead < end and (tokens[at + ahead].upper == word or tokens[at + ahead].is_symbol(word))
                for ahead, word in enumerate(words)
            )
            for words in _CLAUSES
        )

    def _item(self) -> tuple[int, int]:
        """The token indexes of a list item, up to the comma, the next clause or the end."""
        cursor = self._cursor
        first = cursor.position
        depth = 0
        while not cursor.done:
            token = cursor.peek()
            if depth == 0 and (token.is_symbol(",") or self._begins_clause(cursor.position)):
                break
            if token.kind == "symbol":
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
            cursor.position += 1
        return first, cursor.position

    def _span(self, first: int, after: int) -> Span:
        tokens = self._cursor.tokens
        return tokens[first].start, tokens[after - 1].end

    def brackets(self) -> Span:
        """The span of the content of the brackets that open here."""
        cursor = self._cursor
        opened = cursor.expect_symbol("(")
        depth = 1
        while depth:
            token = cursor.next()
            if token.kind == "symbol":
                depth += (token.text == "(") - (token.text == ")")
        return opened.end, token.start

    # -- clauses

    def columns(self, word: str, *, ordered: bool) -> tuple[tuple[str, Span], ...]:
        cursor = self._cursor
        if not cursor.take(word, "BY"):
            return ()
        found = []
        while True:
            found.append(cursor.name("a column"))
            if ordered:
                cursor.take("ASC")
                if cursor.at("DESC"):
                    self._fail(
                        "rows are matched from the earliest to the latest: without DESC", cursor.peek()
                    )
            if not cursor.take_symbol(","):
                return tuple(found)

    def measures(self) -> tuple[tuple[str, Span], ...]:
        cursor = self._cursor
        if not cursor.take("MEASURES"):
            return ()
        found = []
        while True:
            first, after = self._item()
            tokens = cursor.tokens
            if after - first < 3 or tokens[after - 2].upper != "AS" or not tokens[after - 1].names:
                self._fail("a measure has a name: expression AS name", cursor.peek(first - cursor.position))
            found.append((tokens[after - 1].text, self._span(first, after - 2)))
            if not cursor.take_symbol(","):
                return tuple(found)

    def all_rows(self) -> bool:
        cursor = self._cursor
        if cursor.take("ONE", "ROW"):
            cursor.expect("PER")
            cursor.expect("MATCH")
            return False
        if not cursor.take("ALL", "ROWS"):
            return False
        cursor.expect("PER")
        cursor.expect("MATCH")
        if cursor.at("WITH", "UNMATCHED") or cursor.at("SHOW", "EMPTY") or cursor.at("OMIT", "EMPTY"):
            words = f"{cursor.peek().upper} {cursor.peek(1).upper}"
            self._fail(f"ALL ROWS PER MATCH {words} … is not supported", cursor.peek())
        return True

    def skip(self) -> tuple[str, Span | None]:
        cursor = self._cursor
        if not cursor.take("AFTER", "MATCH"):
            return "past last row", None
        cursor.expect("SKIP")
        if cursor.take("PAST"):
            cursor.expect("LAST")
            cursor.expect("ROW")
            return "past last row", None
        cursor.expect("TO")
        if cursor.take("NEXT", "ROW"):
            return "next row", None
        # SQL's TO A is TO LAST A.
        which = "first" if cursor.at("FIRST") and cursor.peek(1).names else "last"
        if cursor.peek(1).names and not cursor.at("PATTERN"):
            cursor.take("FIRST") or cursor.take("LAST")
        _, span = cursor.name("NEXT ROW, or a variable")
        return which, span

    def within(self) -> tuple[int | None, str | None]:
        cursor = self._cursor
        if not cursor.take("WITHIN"):
            return None, None
        longest = duration(cursor, positive=False).microseconds
        grace = None
        if cursor.take("GRACE"):
            cursor.expect("PERIOD")
            grace = duration(cursor, positive=False).text
        return longest, grace

    def subsets(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        cursor = self._cursor
        if not cursor.take("SUBSET"):
            return ()
        found = []
        while True:
            name, _ = cursor.name("the name of a subset")
            cursor.expect_symbol("=")
            cursor.expect_symbol("(")
            parts = [cursor.name("a variable")[0]]
            while cursor.take_symbol(","):
                parts.append(cursor.name("a variable")[0])
            cursor.expect_symbol(")", "a comma or )")
            found.append((name, tuple(parts)))
            if not cursor.take_symbol(","):
                return tuple(found)

    def define(self) -> tuple[tuple[str, Span], ...]:
        cursor = self._cursor
        if not cursor.take("DEFINE"):
            cursor.fail("DEFINE and the conditions of variables", ("DEFINE", "WITHIN", "SUBSET"))
        found = []
        while True:
            name, _ = cursor.name("a variable of PATTERN")
            cursor.expect("AS")
            first, after = self._item()
            if first == after:
                cursor.fail("a condition")
            found.append((name, self._span(first, after)))
            if not cursor.take_symbol(","):
                return tuple(found)
