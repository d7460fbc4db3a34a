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

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.pipelines.errors import BadDefinition, Where
from penstock.pipelines.project.graph import Dataset, FlowDefinition, Graph, Kind, split_name

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<string>r?'(?:[^'\\]|\\.|'')*' | r?"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z_0-9$]+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word, name, string or sign of a statement, with its place in the file's text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


def read_sql(text: str, file: str, graph: Graph) -> None:
    """Adds what the statements of one file define to `graph`; BadDefinition names the line."""
    reader = _File(text, file, graph)
    for tokens in reader.statements():
        _Statement(reader, tokens).read()


def tokens_of(text: str, file: str) -> Iterator[Token]:
    """The tokens of a text without blanks and comments, which may be nested as in Spark."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None and match.lastgroup is not None  # the last branch takes any character
        if match.lastgroup == "comment":
            at = _end_of_comment(text, at, file)
            continue
        if match.lastgroup == "other" and match.group() in "'\"`":
            raise BadDefinition(f"a quote {match.group()} is never closed", Where(file, line_of(text, at)))
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match.group(), at, match.end())
        at = match.end()


def _end_of_comment(text: str, start: int, file: str) -> int:
    depth = 0
    for match in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return start + match.end()
    raise BadDefinition("a comment /* is never closed", Where(file, line_of(text, start)))


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
        statement: list[Token] = []
        for token in tokens_of(self.text, self.file):
            if token.text == ";":
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
        rest = self.file.text[self.tokens[0].end : self.tokens[-1].end].strip()
        key, sign, value = rest.partition("=")
        if not sign or not key.strip():
            self.fail("expected SET key = value")
        self.file.conf[key.strip().strip("`'\"")] = _unquoted(value.strip())

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
        columns = self.parentheses() if self.peek() == "(" else None
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
                partition_by = _columns(self.parentheses())
            elif self.accept("CLUSTER"):
                self.expect("BY")
                cluster_by = _columns(self.parentheses())
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
            name = self.file.graph.qualify(
                ".".join(f"`{part}`" for part in name), self.file.catalog, self.file.database
            )
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
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

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
        parts: list[str] = []
        while True:
            if self.at >= len(self.tokens) or self.tokens[self.at].kind not in ("word", "name"):
                self.fail("a name is missing")
            parts.extend(split_name(self.tokens[self.at].text))
            self.at += 1
            if not self.accept("."):
                return tuple(parts)

    def qualified(self) -> tuple[str, ...]:
        written = ".".join(f"`{part}`" for part in self.name())
        return self.file.graph.qualify(written, self.file.catalog, self.file.database)

    def string(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at].kind != "string":
            self.fail("a text in quotes is missing")
        self.at += 1
        return _unquoted(self.tokens[self.at - 1].text)

    def parentheses(self) -> str:
        """The text between this parenthesis and the one that closes it."""
        self.expect("(")
        start, depth = self.tokens[self.at - 1].end, 1
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
            if depth == 0:
                return self.file.text[start : token.start].strip()
        self.fail("a parenthesis is never closed")
        raise AssertionError

    def _properties(self) -> dict[str, str]:
        inside = self.parentheses()
        properties: dict[str, str] = {}
        for pair in re.finditer(r"""('[^']*'|"[^"]*"|[\w.]+)\s*=?\s*('[^']*'|"[^"]*"|[\w.]+)""", inside):
            properties[_unquoted(pair.group(1))] = _unquoted(pair.group(2))
        return properties


def _columns(inside: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("`") for part in inside.split(",") if part.strip())


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        inner = text[1:-1]
        return re.sub(r"\\(.)", r"\1", inner.replace(text[0] * 2, text[0]))
    return text
