"""Parses FROM: names, subqueries, table functions, joins and their WITHIN."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.words import Words
from penstock.sql.language.patterns import read_pattern
from penstock.sql.language.statements import (
    Pattern,
    SelectPart,
    Source,
    Span,
    Window,
    WindowMark,
    Within,
)
from penstock.sql.language.windows import Nearness, read_within
from penstock.sqltext.tokens import Token

SET_OPERATORS = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
WORD_CLAUSES = ("WHERE", "HAVING", "LIMIT", "OFFSET", "QUALIFY")
_JOIN_WORDS = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "LATERAL")
_NO_ALIAS = frozenset((*SET_OPERATORS, *_JOIN_WORDS, *WORD_CLAUSES)) | frozenset(
    ("JOIN", "ON", "USING", "FROM", "SELECT", "TABLESAMPLE", "PIVOT", "UNPIVOT", "FOR", "AS", "WITH")
)
_OF_NAMES = "MATCH_RECOGNIZE reads a stream or table by its name: CREATE STREAM … AS makes one of a query"
_FILE_FORMATS = ("delta", "parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryfile")
_FILES = (
    "a query reads no files by their path: an administrator declares a table over them with "
    "CREATE TABLE … WITH (storage = 'parquet', path = '…')"
)


@dataclass(slots=True)
class SelectDraft:
    """A SELECT during parsing."""

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

    def done(self) -> SelectPart:
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


class Froms(Words):
    """Collects the sources and the WITHINs of a query; `ctes` are the casefolded names of its WITH."""

    def __init__(self, text: str, tokens: list[Token], start: int, end: int) -> None:
        super().__init__(text, tokens, start, end)
        self.sources: list[Source] = []
        self.withins: list[Within] = []
        self.patterns: list[Pattern] = []

    @abstractmethod
    def query(self, start: int, end: int, ctes: frozenset[str], *, outermost: bool) -> None:
        """Parses a nested query."""

    @abstractmethod
    def expressions(self, start: int, end: int, ctes: frozenset[str], select: SelectDraft) -> None:
        """Parses anything that is not a relation."""

    def relations(self, start: int, end: int, ctes: frozenset[str], select: SelectDraft) -> None:
        """`a [AS] x [, b] [JOIN c ON …] …`"""
        self.joins(self._relation(start, end, ctes, select), end, ctes, select)

    def joins(self, at: int, end: int, ctes: frozenset[str], select: SelectDraft) -> None:
        """The part after the first relation."""
        while at < end:
            if self.is_symbol(at, ","):
                at = self._relation(at + 1, end, ctes, select)
            elif (joined := self._after_join(at, end)) is not None:
                at = self._joined(joined, end, ctes, select)
            elif self.opens_query(at):
                self.query(at + 1, self.pairs[at], ctes, outermost=False)
                at = self.pairs[at] + 1
            else:
                at = self.after(at)

    def _after_join(self, at: int, end: int) -> int | None:
        """The index after `[LEFT OUTER …] JOIN`, if it is here."""
        while at < end and self.word(at) in _JOIN_WORDS:
            at += 1
        return at + 1 if at < end and self.word(at) == "JOIN" else None

    def _relation(self, at: int, end: int, ctes: frozenset[str], select: SelectDraft) -> int:
        """Parses a relation and its alias. Returns the index after it."""
        while at < end and self.word(at) == "LATERAL":
            at += 1
        if at >= end:
            instead = f", not `{self.tokens[at].text}`" if at < self.end else ""
            self.fail(at, f"expected the name of a stream or table{instead}")
        token = self.tokens[at]
        if token.is_symbol("("):
            return self._in_brackets(at, end, ctes, select)
        if not token.names or token.upper == "VALUES":
            return self.after(at)
        if token.upper in _NO_ALIAS:
            self.fail(at, f"expected the name of a stream or table, not `{token.text}`")
        cursor = Cursor(self.text, self.tokens, at, end)
        name, span = cursor.name("the name of a stream or table")
        after = cursor.position
        if token.upper == "IDENTIFIER" and after - at == 1 and self.is_symbol(after, "("):
            self.fail(at, "a stream or table is read by its name, which cannot be computed with IDENTIFIER")
        if after - at > 1 and token.text.casefold() in _FILE_FORMATS and _is_path(self.tokens[after - 1]):
            self.fail(at, _FILES)
        if after < end and self.is_symbol(after, "("):  # a table function
            self.expressions(after + 1, self.pairs[after], ctes, select)
            return self._alias(self.pairs[after] + 1, end)[1]
        last = self.tokens[after - 1]
        if self._is_pattern(after, end):
            if name.casefold() in ctes:
                self.fail(after, _OF_NAMES)
            return self._matched(at, after, end, name, last.text, span, select)
        alias, following = self._alias(after, end)
        if self._is_pattern(following, end):
            self.fail(following, "MATCH_RECOGNIZE stands behind the name, and the alias behind it")
        select.aliases.append(alias or last.text)
        if not (after - at == 1 and token.text.casefold() in ctes):
            self.sources.append(Source(name, alias or last.text, span, alias is not None))
        return following

    def _in_brackets(self, at: int, end: int, ctes: frozenset[str], select: SelectDraft) -> int:
        close = self.pairs[at]
        if not self.opens_query(at):
            self.relations(at + 1, close, ctes, select)
            return self._alias(close + 1, end)[1]
        self.query(at + 1, close, ctes, outermost=False)
        if self._is_pattern(close + 1, end):
            self.fail(close + 1, _OF_NAMES)
        alias, after = self._alias(close + 1, end)
        if alias:
            select.aliases.append(alias)
        return after

    def _is_pattern(self, at: int, end: int) -> bool:
        return at < end and self.word(at) == "MATCH_RECOGNIZE" and self.is_symbol(at + 1, "(")

    def _matched(
        self, at: int, after: int, end: int, name: str, last: str, span: Span, select: SelectDraft
    ) -> int:
        """`name MATCH_RECOGNIZE (…) [AS alias]`"""
        close = self.pairs[after + 1]
        alias, following = self._alias(close + 1, end)
        inner = Cursor(self.text, self.tokens, after + 2, close)
        pattern = read_pattern(
            inner, name, alias or last, aliased=alias is not None, span=self.span(at, close + 1)
        )
        self.patterns.append(pattern)
        select.aliases.append(pattern.alias)
        self.sources.append(Source(name, pattern.alias, span, pattern.aliased))
        return following

    def _alias(self, at: int, end: int) -> tuple[str | None, int]:
        if at + 1 < end and self.word(at) == "AS" and self.tokens[at + 1].names:
            alias, at = self.tokens[at + 1].text, at + 2
        elif at < end and self.tokens[at].names and self._can_be_alias(at, end):
            alias, at = self.tokens[at].text, at + 1
        else:
            return None, at
        if at < end and self.is_symbol(at, "("):  # names of its columns
            at = self.pairs[at] + 1
        return alias, at

    def _can_be_alias(self, at: int, end: int) -> bool:
        token = self.tokens[at]
        if token.kind == "quoted":
            return True
        if token.upper == "WITHIN":
            return not self._is_within(at, end)
        if token.upper in ("VERSION", "TIMESTAMP", "SYSTEM_TIME") and self.word(at + 1) == "AS":
            return False
        return token.upper not in _NO_ALIAS

    def _is_within(self, at: int, end: int) -> bool:
        if self.word(at) != "WITHIN" or at + 1 >= end:
            return False
        token = self.tokens[at + 1]
        return token.kind in ("number", "string") or token.is_symbol("(") or token.upper == "INTERVAL"

    def _joined(self, at: int, end: int, ctes: frozenset[str], select: SelectDraft) -> int:
        known = list(select.aliases)
        at = self._relation(at, end, ctes, select)
        near: Nearness | None = None
        if self._is_within(at, end):
            cursor = Cursor(self.text, self.tokens, at, end)
            near = read_within(cursor)
            at = cursor.position
        if at >= end or self.word(at) != "ON":
            return at
        start = at + 1
        at = self._end_of_condition(start, end)
        self.expressions(start, at, ctes, select)
        if near is not None:
            if start >= at:
                self.fail(start, "expected the condition of the join after ON")
            right = select.aliases[-1] if len(select.aliases) > len(known) else None
            left = self._left_of(start, at, known)
            if right is None or left is None:
                message = "WITHIN joins two streams that have names: give a subquery an alias"
                raise BadSyntax(message, Place.of(self.text, near.span[0]))
            condition = self.span(start, at)
            self.withins.append(
                Within(left, right, near.before, near.after, near.grace, near.span, condition)
            )
        return at

    def _left_of(self, start: int, end: int, known: list[str]) -> str | None:
        """The relation whose event time is used: the first one in the condition, or the first of them."""
        folded = {alias.casefold(): alias for alias in known}
        for at in range(start, end - 1):
            if self.tokens[at].names and self.is_symbol(at + 1, "."):
                if (alias := folded.get(self.tokens[at].text.casefold())) is not None:
                    return alias
        return known[0] if known else None

    def _end_of_condition(self, at: int, end: int) -> int:
        while at < end and not self.is_symbol(at, ","):
            word = self.word(at)
            if word == "JOIN" or (word in _JOIN_WORDS and self._after_join(at, end) is not None):
                break
            at = self.after(at)
        return at


def _is_path(token: Token) -> bool:
    """A name in backticks with a character that topic names cannot have."""
    return token.kind == "quoted" and any(each in token.text for each in "/\\:")
