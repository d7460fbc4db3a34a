"""Types as text: Spark's names for them, and the other words for the same (VARCHAR, BYTES, INTEGER).

One reader for all of them: with a cursor that knows places it reads what users write; `type_of` reads the
text of a column's type, on servers and in clients. No Spark and no sqlglot, which reads types too, but takes
`ARRAY<STRNG>` for ARRAY and TIME for TIMESTAMP, and drops the field `a-b` of a struct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from penstock.sqltext.identifiers import quoted, unquoted

CLASSES = {
    "BOOLEAN": "BooleanType",
    "TINYINT": "ByteType",
    "SMALLINT": "ShortType",
    "INT": "IntegerType",
    "BIGINT": "LongType",
    "FLOAT": "FloatType",
    "DOUBLE": "DoubleType",
    "DECIMAL": "DecimalType",
    "STRING": "StringType",
    "BINARY": "BinaryType",
    "DATE": "DateType",
    "TIMESTAMP": "TimestampType",
    "TIMESTAMP_NTZ": "TimestampNTZType",
    "TIME": "TimeType",
    "VARIANT": "VariantType",
}
"""The types that a column can have beside ARRAY, MAP and STRUCT, and Spark's classes for them."""
SAME = {
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "BYTES": "BINARY",
    "TEXT": "STRING",
    "BOOL": "BOOLEAN",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
"""Other words for them."""
TIME_PRECISION = 6
"""Digits of the second of a TIME of which nobody says how many it has."""
_SIZED = {"DECIMAL": (0, 2), "VARCHAR": (0, 1), "CHAR": (1, 1), "TIME": (0, 1)}
NAMES = tuple(sorted(CLASSES.keys() | _SIZED.keys() | {"ARRAY", "MAP", "STRUCT"}))
_DEEPEST = 40
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def plain_or_quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type by its name. `str()` is the text that DESCRIBE shows and Spark reads."""

    word: str
    """In Spark's words. `INTERVAL DAY TO SECOND` is one."""
    sizes: tuple[int, ...] = ()
    inside: tuple[TypeName, ...] = ()
    """Of the elements of an ARRAY, of the keys and values of a MAP, of the fields of a STRUCT."""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.word == "STRUCT":
            pairs = zip(self.fields, self.inside, strict=True)
            return f"STRUCT<{', '.join(f'{plain_or_quoted(name)}: {kind}' for name, kind in pairs)}>"
        if self.inside:
            return f"{self.word}<{', '.join(map(str, self.inside))}>"
        return f"{self.word}({','.join(map(str, self.sizes))})" if self.sizes else self.word


class TypeCursor(Protocol):
    """Over the tokens of a text; `fail` says what is expected at the next one."""

    def peek(self, ahead: int = 0) -> Any:
        """The next token: `kind`, `text`, `upper` (of a word) and `names` (it can be a field's name)."""

    def next(self) -> Any: ...
    def take_symbol(self, symbol: str) -> bool: ...
    def expect_symbol(self, symbol: str, instead: str = "") -> Any: ...
    def fail(self, expected: str, words: Iterable[str] = (), *, hint: str = "") -> NoReturn: ...


def type_of(text: str) -> TypeName:
    """The type with this name, also one that only queries give (VOID, INTERVAL); ValueError for others."""
    cursor = _Text(text)
    found = read_type(cursor, of_queries=True)
    if cursor.peek().kind != "end":
        cursor.fail("the end of the type")
    return found


def read_type(cursor: TypeCursor, *, of_queries: bool = False, depth: int = 0) -> TypeName:
    """Reads a type; with `of_queries` also those that no column can be declared with."""
    token = cursor.peek()
    word = SAME.get(token.upper, token.upper)
    if depth > _DEEPEST:
        cursor.fail("a type that is less deep")

    def inner() -> TypeName:
        return read_type(cursor, of_queries=of_queries, depth=depth + 1)

    if word in _SIZED:
        cursor.next()
        return _sized(cursor, word)
    if word in CLASSES or (of_queries and word == "VOID"):
        cursor.next()
        return TypeName(word)
    if word == "ARRAY":
        cursor.next()
        cursor.expect_symbol("<", "< and the type of the elements")
        element = inner()
        cursor.expect_symbol(">")
        return TypeName("ARRAY", inside=(element,))
    if word == "MAP":
        cursor.next()
        cursor.expect_symbol("<", "< and the types of key and value")
        key = inner()
        cursor.expect_symbol(",", "a comma and the type of the values")
        value = inner()
        cursor.expect_symbol(">")
        return TypeName("MAP", inside=(key, value))
    if word == "STRUCT":
        cursor.next()
        cursor.expect_symbol("<", "< and the fields")
        fields: list[str] = []
        kinds: list[TypeName] = []
        while not cursor.take_symbol(">"):
            if fields:
                cursor.expect_symbol(",", "a comma or >")
            if not cursor.peek().names:
                cursor.fail("the name of a field")
            fields.append(str(cursor.next().text))
            cursor.take_symbol(":")
            kinds.append(inner())
        return TypeName("STRUCT", inside=tuple(kinds), fields=tuple(fields))
    if of_queries and word == "INTERVAL":
        cursor.next()
        return _interval(cursor)
    cursor.fail("a type", (*NAMES, *SAME))


def _sized(cursor: TypeCursor, word: str) -> TypeName:
    least, most = _SIZED[word]
    sizes: list[int] = []
    if least or _is_symbol(cursor.peek(), "("):
        cursor.expect_symbol("(", "( and a length")
        while True:
            token = cursor.peek()
            if token.kind != "number" or not token.text.isdigit():
                cursor.fail("a whole number")
            sizes.append(int(cursor.next().text))
            if len(sizes) == most or not cursor.take_symbol(","):
                break
        cursor.expect_symbol(")")
    if word == "VARCHAR" and not sizes:
        return TypeName("STRING")
    return TypeName(word, tuple(sizes))


def _interval(cursor: TypeCursor) -> TypeName:
    """`INTERVAL DAY TO SECOND`."""
    word = "INTERVAL"
    if cursor.peek().upper:
        word += f" {cursor.next().upper}"
        if cursor.peek().upper == "TO":
            cursor.next()
            if not cursor.peek().upper:
                cursor.fail("the end of an interval")
            word += f" TO {cursor.next().upper}"
    return TypeName(word)


def _is_symbol(token: Any, symbol: str) -> bool:
    return bool(token.kind == "symbol" and token.text == symbol)


_TOKENS = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<number>[0-9]+(?!\w))|(?P<word>\w+)|(?P<symbol>\S)|(?P<end>\Z))"
)


@dataclass(frozen=True, slots=True)
class _TypeToken:
    kind: str
    text: str

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    @property
    def names(self) -> bool:
        return self.kind in ("word", "quoted")


class _Text:
    """A cursor over the text of a type alone."""

    def __init__(self, text: str) -> None:
        self._whole = text
        self._tokens = [
            _TypeToken(kind, unquoted(found[kind]) if kind == "quoted" else found[kind])
            for found in _TOKENS.finditer(text)
            if (kind := found.lastgroup or "")
        ]
        self._at = 0

    def peek(self, ahead: int = 0) -> _TypeToken:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> _TypeToken:
        token = self.peek()
        self._at += 1
        return token

    def take_symbol(self, symbol: str) -> bool:
        if not _is_symbol(self.peek(), symbol):
            return False
        self._at += 1
        return True

    def expect_symbol(self, symbol: str, instead: str = "") -> _TypeToken:
        if not _is_symbol(self.peek(), symbol):
            self.fail(instead or symbol)
        return self.next()

    def fail(self, expected: str, words: Iterable[str] = (), *, hint: str = "") -> NoReturn:
        found = self.peek()
        said = "it ends" if found.kind == "end" else f"it has `{found.text}`"
        raise ValueError(f"{self._whole!r} is not a type: {said} where {expected} is expected")
