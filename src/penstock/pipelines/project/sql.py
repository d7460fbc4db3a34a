"""The statements of a pipeline's SQL file: split, and read around the query, which goes to Spark as it is.

    CREATE STREAMING TABLE [IF NOT EXISTS] name [(columns)] [USING format] [clauses] [AS query]
    CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(columns)] [USING format] [clauses] AS query
    CREATE [TEMPORARY] VIEW name [COMMENT '…'] AS query
    CREATE FLOW name [COMMENT '…'] AS INSERT INTO target [BY NAME] query
    SET key = value        USE [SCHEMA | DATABASE | NAMESPACE | CATALOG] name

The clauses are PARTITIONED BY, CLUSTER BY, COMMENT and TBLPROPERTIES. A query is padded with blank lines,
so that the positions in Spark's own messages are those of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.pipelines.errors import BadDefinition, Where
from penstock.pipelines.project.graph import Dataset, FlowDefinition, Graph, Kind
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.tokens import NeverEnds, Token, tokenize


def read_sql(text: str, file: str, graph: Graph) -> None:
    """Adds what the statements of one file define to `graph`; BadDefinition names the line."""
    reader = _File(text, file, graph)
    for tokens in reader.statements():
        _Statement(reader, tokens).read()


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


class _File:
    """One SQL file, and what its SET and USE statements have set so far."""

    def __init__(self, text: str, file: str, graph: Graph) -> None:
        self.text = text
        self.file = file
        self.graph = graph
        self.conf: dict[str, str] = {}
        self.catalog: str | None = None
        self.database: str | None = None

    def statements(self) -> Iterator[list[Token]]:
        try:
            tokens = tokenize(self.text)
        except NeverEnds as error:
            raise BadDefinition(error.message, Where(self.file, line_of(self.text, error.offset))) from None
        statement: list[Token] = []
        for token in tokens:
            if token.is_symbol(";"):
                if statement:
                    yield statement
                statement = []
            else:
                statement.append(token)
        if statement:
            yield statement

    def where(self, token: Token) -> Where:
        return Where(self.file, line_of(self.text, token.start))

    def padded(self, start: int, end: int) -> str:
        """A piece of the file at the line and column where the file has it."""
        line_start = self.text.rfind("\n", 0, start) + 1
        return "\n" * self.text.count("\n", 0, start) + " " * (start - line_start) + self.text[start:end]


class _Statement:
    """Reads one statement from left to right."""

    def __init__(self, file: _File, tokens: list[Token]) -> None:
        self.file = file
        self.tokens = tokens
        self.at = 0
        self.where = file.where(tokens[0])

    def read(self) -> None:
        if self.accept("SET"):
            self._set()
        elif self.accept("USE"):
            self._use()
        elif self.accept("CREATE"):
            self._create()
        else:
            self.fail(
                "a pipeline's SQL file creates STREAMING TABLE, MATERIALIZED VIEW, [TEMPORARY] VIEW or FLOW"
            )

    # -- statements

    def _set(self) -> None:
        signs = [at for at, token in enumerate(self.tokens) if token.is_symbol("=")]
        if not signs or signs[0] == self.at:
            self.fail("expected SET key = value")
        self.file.conf[self.written(self.at, signs[0])] = self.written(signs[0] + 1, len(self.tokens))

    def _use(self) -> None:
        if self.accept("CATALOG"):
            self.file.catalog = self.name()[0]
            self.file.database = None
            return
        for word in ("SCHEMA", "DATABASE", "NAMESPACE"):
            if self.accept(word):
                break
        *catalog, database = self.name()
        self.file.database = database
        if catalog:
            self.file.catalog = catalog[-1]

    def _create(self) -> None:
        if self.accept("STREAMING"):
            self.expect("TABLE")
            self._table(Kind.STREAMING_TABLE)
        elif self.accept("MATERIALIZED"):
            self.expect("VIEW")
            self._table(Kind.MATERIALIZED_VIEW)
        elif self.accept("TEMPORARY") or self.accept("TEMP"):
            self.expect("VIEW")
            self._view(Kind.TEMPORARY_VIEW)
        elif self.accept("VIEW"):
            self._view(Kind.VIEW)
        elif self.accept("FLOW"):
            self._flow()
        else:
            self.fail("a pipeline creates STREAMING TABLE, MATERIALIZED VIEW, TEMPORARY VIEW, VIEW or FLOW")

    def _table(self, kind: Kind) -> None:
        self._if_not_exists()
        name = self.qualified()
        columns = self._text(*self.parentheses()) if self.peek() == "(" else None
        format_: str | None = None
        comment: str | None = None
        partition_by: tuple[str, ...] = ()
        cluster_by: tuple[str, ...] = ()
        properties: dict[str, str] = {}
        while self.at < len(self.tokens) and self.peek() not in ("AS", "FLOW"):
            if self.accept("USING"):
                format_ = ".".join(self.name())
            elif self.accept("PARTITIONED"):
                self.expect("BY")
                partition_by = self._columns()
            elif self.accept("CLUSTER"):
                self.expect("BY")
                cluster_by = self._columns()
            elif self.accept("COMMENT"):
                comment = self.string()
            elif self.accept("TBLPROPERTIES"):
                properties = self._properties()
            else:
                self.fail(f"unexpected '{self.peek()}'")
        if self.peek() == "FLOW":
            self.fail("AUTO CDC runs with `penstock pipeline run --once` only")
        self.file.graph.add_dataset(
            Dataset(name, kind, self.where, comment, columns, format_, partition_by, cluster_by, properties)
        )
        if self.accept("AS"):
            self._add_flow(self.file.graph.short(name), name, by_default=True)
        elif kind is Kind.MATERIALIZED_VIEW:
            self.fail("a materialized view needs AS and a query")

    def _view(self, kind: Kind) -> None:
        self._if_not_exists()
        name = self.name()
        if kind is Kind.VIEW:
            name = self.file.graph.qualify(".".join(map(quoted, name)), self.file.catalog, self.file.database)
        elif len(name) > 1:
            self.fail("the name of a temporary view has one part")
        comment = self.string() if self.accept("COMMENT") else None
        self.expect("AS")
        self.file.graph.add_dataset(Dataset(name, kind, self.where, comment))
        self._add_flow(self.file.graph.short(name), name, by_default=True)

    def _flow(self) -> None:
        name = ".".join(self.name())
        if self.accept("COMMENT"):
            self.string()
        self.expect("AS")
        if self.peek() == "AUTO":
            self.fail("AUTO CDC runs with `penstock pipeline run --once` only")
        self.expect("INSERT")
        self.expect("INTO")
        self.accept("TABLE")
        target = self.qualified()
        if self.accept("BY"):
            self.expect("NAME")
        self._add_flow(name, target, by_default=False)

    def _add_flow(self, name: str, target: tuple[str, ...], *, by_default: bool) -> None:
        if self.at >= len(self.tokens):
            self.fail("the query is missing")
        select = self.file.padded(self.tokens[self.at].start, self.tokens[-1].end)
        self.file.graph.add_flow(
            FlowDefinition(
                name=name,
                target=target,
                where=self.where,
                select=select,
                conf=dict(self.file.conf),
                catalog=self.file.catalog,
                database=self.file.database,
                by_default=by_default,
            )
        )

    # -- pieces of statements

    def peek(self) -> str:
        """The next word in capitals, or the next sign."""
        if self.at >= len(self.tokens):
            return ""
        token = self.tokens[self.at]
        return token.upper or (token.text if token.kind == "symbol" else self._text(self.at, self.at + 1))

    def _text(self, start: int, end: int) -> str:
        """These tokens as the file has them."""
        return self.file.text[self.tokens[start].start : self.tokens[end - 1].end] if start < end else ""

    def written(self, start: int, end: int) -> str:
        """A key or value: the content of one quoted token, otherwise the text."""
        if end - start == 1 and self.tokens[start].kind in ("string", "quoted"):
            return self.tokens[start].text
        return self._text(start, end)

    def accept(self, word: str) -> bool:
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"{word} is missing" + (f" before '{self.peek()}'" if self.peek() else " at the end"))

    def fail(self, message: str) -> None:
        here = self.tokens[min(self.at, len(self.tokens) - 1)]
        raise BadDefinition(message, self.file.where(here))

    def _if_not_exists(self) -> None:
        if self.accept("IF"):
            self.expect("NOT")
            self.expect("EXISTS")

    def name(self) -> tuple[str, ...]:
        """The parts of a name in lower case, as Spark's catalog has them."""
        parts: list[str] = []
        while True:
            if self.at >= len(self.tokens) or not self.tokens[self.at].names:
                self.fail("a name is missing")
            parts.append(self.tokens[self.at].text.lower())
            self.at += 1
            if not self.accept("."):
                return tuple(parts)

    def qualified(self) -> tuple[str, ...]:
        written = ".".join(map(quoted, self.name()))
        return self.file.graph.qualify(written, self.file.catalog, self.file.database)

    def string(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at].kind != "string":
            self.fail("a text in quotes is missing")
        self.at += 1
        return self.tokens[self.at - 1].text

    def parentheses(self) -> tuple[int, int]:
        """From and to, as indexes of tokens, between this parenthesis and the one that closes it."""
        self.expect("(")
        start, depth = self.at, 1
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            if depth == 0:
                return start, self.at - 1
        self.fail("a parenthesis is never closed")
        raise AssertionError

    def _columns(self) -> tuple[str, ...]:
        return tuple(self.written(*item) for item in self._items(*self.parentheses()))

    def _properties(self) -> dict[str, str]:
        """`key = value` or `key value`, where a key may have dots: `x.y = 'z'`."""
        properties: dict[str, str] = {}
        for start, end in self._items(*self.parentheses()):
            after = start + 1
            while after + 1 < end and self.tokens[after].is_symbol("."):
                after += 2
            value = after + 1 if after < end and self.tokens[after].is_symbol("=") else after
            properties[self.written(start, after)] = self.written(value, end)
        return properties

    def _items(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """What the commas outside of parentheses set apart."""
        first, depth = start, 0
        for at in range(start, end):
            token = self.tokens[at]
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            if token.is_symbol(",") and not depth:
                if first < at:
                    yield first, at
                first = at + 1
        if first < end:
            yield first, end
