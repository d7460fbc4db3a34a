"""Types of columns: Spark's, and the words of ksqlDB for the same (VARCHAR, BYTES, INTEGER).

sqlglot reads types too, but takes `ARRAY<STRNG>` for ARRAY and TIME for TIMESTAMP, drops the field `a-b` of a
struct, and has no places for its types: a mistake would not be reported.
"""

from __future__ import annotations

from penstock.sql.language.lexer.cursor import Cursor
from penstock.sqltext.identifiers import quoted

NAMES = {
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
TYPES = tuple(sorted(NAMES.keys() | _SIZED.keys() | {"ARRAY", "MAP", "STRUCT"}))


def column_type(cursor: Cursor, depth: int = 0) -> str:
    """Reads a type, and gives it in Spark's words: `STRUCT<a: INT, b: ARRAY<STRING>>`."""
    token = cursor.peek()
    word = SAME.get(token.upper, token.upper)
    if depth > 40:
        cursor.fail("a type that is less deep")
    if word in _SIZED:
        cursor.next()
        return _sized(cursor, word)
    if word in NAMES:
        cursor.next()
        return word
    if word == "ARRAY":
        cursor.next()
        cursor.expect_symbol("<", "< and the type of the elements")
        inner = column_type(cursor, depth + 1)
        cursor.expect_symbol(">")
        return f"ARRAY<{inner}>"
    if word == "MAP":
        cursor.next()
        cursor.expect_symbol("<", "< and the types of key and value")
        key = column_type(cursor, depth + 1)
        cursor.expect_symbol(",", "a comma and the type of the values")
        value = column_type(cursor, depth + 1)
        cursor.expect_symbol(">")
        return f"MAP<{key}, {value}>"
    if word == "STRUCT":
        cursor.next()
        return _struct(cursor, depth)
    cursor.fail("a type", (*TYPES, *SAME))


def _sized(cursor: Cursor, word: str) -> str:
    least, most = _SIZED[word]
    sizes: list[str] = []
    if cursor.peek().is_symbol("(") or least:
        cursor.expect_symbol("(", "( and a length")
        while True:
            token = cursor.peek()
            if token.kind != "number" or not token.text.isdigit():
                cursor.fail("a whole number")
            sizes.append(cursor.next().text)
            if len(sizes) == most or not cursor.take_symbol(","):
                break
        cursor.expect_symbol(")")
    if word == "VARCHAR" and not sizes:
        return "STRING"
    return f"{word}({', '.join(sizes)})" if sizes else word


def _struct(cursor: Cursor, depth: int) -> str:
    cursor.expect_symbol("<", "< and the fields")
    fields: list[str] = []
    while not cursor.take_symbol(">"):
        if fields:
            cursor.expect_symbol(",", "a comma or >")
        token = cursor.peek()
        if not token.names:
            cursor.fail("the name of a field")
        cursor.next()
        cursor.take_symbol(":")
        plain = token.kind == "word" and token.text.isascii() and not token.text[0].isdigit()
        name = token.text if plain else quoted(token.text)
        fields.append(f"{name}: {column_type(cursor, depth + 1)}")
    return f"STRUCT<{', '.join(fields)}>"
