"""Parses text to statements. Raises BadSyntax with line and column.

Parses what is around a query; `selects` parses the query itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from penstock.sql.errors import BadSyntax, Place, did_you_mean
from penstock.sql.language.definitions import read_columns, read_dotted, read_options, read_part, read_value
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.keywords import FIRST_WORDS
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.lexer.variables import expand
from penstock.sql.language.lexer.words import QUERY_WORDS, match_brackets
from penstock.sql.language.selects import read_query
from penstock.sql.language.statements import (
    Column,
    ControlQuery,
    CreateFunction,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    InsertQuery,
    InsertValues,
    Query,
    Select,
    SetProperty,
    SetVariable,
    Show,
    Span,
    Statement,
)
from penstock.sqltext.tokens import Token
from penstock.sqltext.types import read_type

_SHOWN = ("TOPICS", "STREAMS", "TABLES", "QUERIES", "FUNCTIONS", "VARIABLES", "PROPERTIES")


def parse(text: str, variables: Mapping[str, str] | None = {}) -> list[Statement]:
    """All statements of the text, separated by `;`.

    `${name}` is replaced by a variable's value, including variables that a DEFINE earlier in the text sets.
    With None as variables nothing is replaced (they were replaced before).
    """
    known = None if variables is None else dict(variables)
    statements: list[Statement] = []
    for tokens in _split(tokenize(text)):
        expanded, end = (text, tokens[-1].end) if known is None else expand(text, tokens, known)
        if expanded is not text:
            tokens = tokenize(expanded, tokens[0].start, end)
        statement = _Parser(expanded, tokens).statement()
        statements.append(statement)
        if isinstance(statement, SetVariable) and known is not None:
            if statement.value is None:
                known = {
                    name: value
                    for name, value in known.items()
                    if name.casefold() != statement.name.casefold()
                }
            else:
                known[statement.name] = statement.value
    return statements


def is_complete(text: str) -> bool:
    """Whether the shell can send it: it ends with `;` outside of strings, bodies and comments, or is
    empty.
    """
    try:
        tokens = tokenize(text)
    except BadSyntax:
        return False
    return not tokens or tokens[-1].is_symbol(";")


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_symbol(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [each for each in statements if each]


class _Parser(Cursor):
    """The parser of one statement."""

    tokens: list[Token]

    def __init__(self, text: str, tokens: list[Token]) -> None:
        if not tokens:
            raise BadSyntax("the statement is empty once its variables are replaced")
        super().__init__(text, tokens)
        self._whole: Span = (tokens[0].start, tokens[-1].end)
        for token in tokens:
            if token.is_symbol(";"):
                raise BadSyntax("the value of a variable cannot hold a `;`", Place.of(text, token.start))

    def statement(self) -> Statement:
        first = self.peek()
        match first.upper:
            case "SELECT" | "WITH" | "FROM" | "VALUES":
                return Select(self.text, self._rest(), self._query())
            case "CREATE":
                return self._create()
            case "INSERT":
                return self._insert()
            case "DROP":
                return self._drop()
            case "SHOW" | "LIST":
                return self._show()
            case "DESCRIBE" | "DESC":
                return self._describe()
            case "EXPLAIN":
                return self._explain()
            case "PAUSE" | "RESUME" | "TERMINATE":
                return self._control()
            case "DEFINE" | "UNDEFINE":
                return self._variable()
            case "SET" | "UNSET":
                return self._property()
        if first.is_symbol("("):
            return Select(self.text, self._rest(), self._query())
        self.fail("a statement", FIRST_WORDS, hint=_instead(first))

    def _rest(self) -> Span:
        """From here to the end: the whole statement, or the one after EXPLAIN."""
        return self.peek().start, self._whole[1]

    # CREATE

    def _create(self) -> Statement:
        span = self._rest()
        self.next()
        or_replace = False
        if self.take("OR"):
            self.expect("REPLACE")
            or_replace = True
        kind = self.expect("STREAM", "TABLE", "FUNCTION", *(() if or_replace else ("OR REPLACE",)))
        if kind == "FUNCTION":
            return self._create_function(span, or_replace)
        if_not_exists = self._if_not_exists(or_replace)
        name, name_span = self.name(f"the name of the {kind.lower()}")
        columns: tuple[Column, ...] = ()
        if self.peek().is_symbol("("):
            columns = read_columns(self)
        options: dict[str, str] = {}
        spans: dict[str, Span] = {}
        if self.take("WITH"):
            options, spans = read_options(self)
        query: Query | None = None
        if self.take("AS"):
            if columns:
                raise BadSyntax(
                    "columns are given or come from a query after AS, not both",
                    Place.of(self.text, name_span[1]),
                )
            query = self._query()
        elif not self.done:
            could = [*(() if columns or options else ("(",)), *(() if options else ("WITH",)), "AS"]
            self.fail(" or ".join((*(each for each in could), "the end")), ("WITH", "AS"))
        return CreateRelation(
            self.text,
            span,
            "stream" if kind == "STREAM" else "table",
            name,
            name_span,
            columns,
            options,
            query,
            or_replace,
            if_not_exists,
            spans,
        )

    def _if_not_exists(self, or_replace: bool) -> bool:
        if not self.at("IF"):
            return False
        if or_replace:
            self.fail("a name", hint=" (OR REPLACE and IF NOT EXISTS exclude each other)")
        self.next()
        self.expect("NOT")
        self.expect("EXISTS")
        return True

    def _create_function(self, span: Span, or_replace: bool) -> CreateFunction:
        if_not_exists = self._if_not_exists(or_replace)
        name, name_span = self.name("the name of the function")
        self.expect_symbol("(", "( and the parameters")
        parameters: list[Column] = []
        while not self.take_symbol(")"):
            if parameters:
                self.expect_symbol(",", "a comma or )")
            token = self.peek()
            if not token.names:
                self.fail("the name of a parameter" if parameters else "the name of a parameter, or )")
            self.next()
            parameters.append(Column(token.text, str(read_type(self)), False, (token.start, token.end)))
        returns = language = ""
        while not (returns and language):
            missing = [word for word, value in (("RETURNS", returns), ("LANGUAGE", language)) if not value]
            if self.expect(*missing) == "RETURNS":
                returns = str(read_type(self))
            else:
                language = self.expect("PYTHON").lower()
        self.expect("AS")
        body = self.peek()
        if body.kind not in ("body", "string"):
            self.fail("the body of the function between $$ and $$")
        self.next()
        self.finish()
        return CreateFunction(
            self.text,
            span,
            name,
            tuple(parameters),
            returns,
            language,
            body.text,
            or_replace,
            if_not_exists,
            name_span,
            (body.start, body.end),
        )

    # INSERT and queries

    def _insert(self) -> Statement:
        span = self._rest()
        self.next()
        self.expect("INTO")
        target, target_span = self.name("the name of a stream or table")
        columns: list[str] = []
        column_spans: list[Span] = []
        opening = self.peek()
        if opening.is_symbol("(") and self.peek(1).upper not in QUERY_WORDS:
            self.next()
            while True:
                column_spans.append((self.peek().start, self.peek().end))
                columns.append(read_part(self, "the name of a column"))
                if self.take_symbol(")"):
                    break
                self.expect_symbol(",", "a comma or )")
        if self.take("VALUES"):
            rows = self._rows(len(columns))
            return InsertValues(
                self.text, span, target, target_span, tuple(columns), rows, tuple(column_spans)
            )
        if columns and not self.done:
            self.fail(
                "VALUES", ("VALUES",), hint=" (the columns of a query go by their names: give them with AS)"
            )
        options: dict[str, str] = {}
        spans: dict[str, Span] = {}
        if self.at("WITH") and self.peek(1).is_symbol("("):
            self.next()
            options, spans = read_options(self)
        if self.peek().upper not in QUERY_WORDS and not self.peek().is_symbol("("):
            could = ("SELECT",) if options else ("VALUES", "SELECT")
            self.fail(" or ".join(could), (*could, "WITH"))
        return InsertQuery(self.text, span, target, target_span, self._query(), options, spans)

    def _rows(self, width: int) -> tuple[tuple[Span, ...], ...]:
        pairs = match_brackets(self.text, self.tokens, self.position, self.end)
        rows: list[tuple[Span, ...]] = []
        while True:
            opening = self.position
            self.expect_symbol("(", "( and the values of a row")
            close = pairs[opening]
            row: list[Span] = []
            first = at = opening + 1
            while at <= close:
                if at == close or self.tokens[at].is_symbol(","):
                    if first == at:
                        self.position = at
                        self.fail("a value")
                    row.append((self.tokens[first].start, self.tokens[at - 1].end))
                    first = at + 1
                at = pairs[at] + 1 if at in pairs else at + 1
            expected = width or (len(rows[0]) if rows else len(row))
            if len(row) != expected:
                message = f"this row has {len(row)} values, and {expected} are expected"
                raise BadSyntax(message, Place.of(self.text, self.tokens[opening].start))
            rows.append(tuple(row))
            self.position = close + 1
            if not self.take_symbol(","):
                self.finish()
                return tuple(rows)

    def _query(self) -> Query:
        if self.peek().upper not in QUERY_WORDS and not self.peek().is_symbol("("):
            self.fail("SELECT", ("SELECT", "WITH"))
        query = read_query(self.text, self.tokens, self.position, self.end)
        self.position = self.end
        return query

    # The rest

    def _drop(self) -> Drop:
        span = self._rest()
        self.next()
        kind = cast(
            Literal["stream", "table", "function"], self.expect("STREAM", "TABLE", "FUNCTION").lower()
        )
        if_exists = False
        if self.take("IF"):
            self.expect("EXISTS")
            if_exists = True
        name, name_span = self.name(f"the name of the {kind}")
        delete_topic = False
        if kind != "function" and self.take("DELETE"):
            self.expect("TOPIC")
            delete_topic = True
        if not delete_topic and kind != "function":
            self.finish("DELETE TOPIC")
        self.finish()
        return Drop(self.text, span, kind, name, name_span, if_exists, delete_topic)

    def _show(self) -> Show:
        span = self._rest()
        self.next()
        self.take("ALL")
        what = self.expect(*_SHOWN).lower()
        extended = self.take("EXTENDED")
        self.finish(*(() if extended else ("EXTENDED",)))
        return Show(
            self.text,
            span,
            cast(
                Literal["topics", "streams", "tables", "queries", "functions", "variables", "properties"],
                what,
            ),
            extended,
        )

    def _describe(self) -> Describe:
        span = self._rest()
        self.next()
        extended = self.at("EXTENDED") and self.peek(1).kind != "end" and self.take("EXTENDED")
        function = False
        if self.peek(1).names and self.peek().upper in ("FUNCTION", "STREAM", "TABLE", "QUERY", "TOPIC"):
            if not (self.peek(1).upper == "EXTENDED" and self.peek(2).kind == "end"):
                function = self.next().upper == "FUNCTION"
        name, name_span = self._identifier("the name of a stream, table, topic or query")
        extended = self.take("EXTENDED") or extended
        self.finish(*(() if extended else ("EXTENDED",)))
        return Describe(self.text, span, name, name_span, extended, function)

    def _explain(self) -> Explain:
        span = self._rest()
        self.next()
        first = self.peek()
        if first.upper == "EXPLAIN":
            self.fail("a statement or the id of a query")
        alone = self.position + 1 == self.end
        if not alone and (first.upper in FIRST_WORDS or first.is_symbol("(")):
            return Explain(self.text, span, self.statement())
        self.take("QUERY")
        id_, id_span = self._identifier("a statement or the id of a query", FIRST_WORDS)
        if not self.done:
            self.position = self.end - 1 if self.position >= self.end else self.position
            near = did_you_mean(first.text, FIRST_WORDS)
            raise BadSyntax(
                f"expected a statement or the id of a query{near}", Place.of(self.text, first.start)
            )
        return Explain(self.text, span, None, id_, id_span)

    def _control(self) -> ControlQuery:
        span = self._rest()
        action = cast(Literal["pause", "resume", "terminate"], self.next().text.lower())
        if self.peek(1).kind != "end":
            self.take("QUERY")
        if self.at("ALL") and self.peek(1).kind == "end":
            token = self.next()
            return ControlQuery(self.text, span, action, None, (token.start, token.end))
        id_, id_span = self._identifier("the id of a query, or ALL")
        self.finish()
        return ControlQuery(self.text, span, action, id_, id_span)

    def _identifier(self, what: str, words: Sequence[str] = ()) -> tuple[str, Span]:
        """A name or id. Dashes and dots need no backticks here, because nothing else is possible."""
        first = token = self.peek()
        if not token.names and token.kind != "string":
            self.fail(what, words)
        self.next()
        if first.kind != "word":
            return first.text, (first.start, first.end)
        while self.peek().start == token.end and (
            self.peek().kind in ("word", "number") or self.peek().is_symbol("-") or self.peek().is_symbol(".")
        ):
            token = self.next()
        return self.text[first.start : token.end], (first.start, token.end)

    def _variable(self) -> SetVariable:
        span = self._rest()
        if self.next().upper == "UNDEFINE":
            name = read_part(self, "the name of a variable")
            self.finish()
            return SetVariable(self.text, span, name, None)
        name = read_part(self, "the name of a variable")
        self.expect_symbol("=", "= and the value")
        value = read_value(self, "the value of the variable")
        self.finish()
        return SetVariable(self.text, span, name, value)

    def _property(self) -> Statement:
        span = self._rest()
        if self.next().upper == "UNSET":
            name = read_dotted(self, "the name of a property")
            self.finish()
            return SetProperty(self.text, span, name, None)
        if self.done:
            return Show(self.text, span, "properties")
        name = read_dotted(self, "the name of a property")
        self.expect_symbol("=", f"= and the value of `{name}`")
        if self.done:
            self.fail(f"the value of `{name}`")
        first = self.next()
        if self.done:
            return SetProperty(self.text, span, name, first.text)
        self.position = self.end
        return SetProperty(self.text, span, name, self.text[first.start : span[1]])


def _instead(first: Token) -> str:
    """The message for words that start statements in other systems."""
    match first.upper:
        case "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE":
            return " (records of a topic are not changed in place: INSERT INTO writes new ones)"
        case "ALTER":
            return " (CREATE OR REPLACE changes an existing one)"
    return ""
