"""The tokens of continuous SQL, with bodies and variables; what never ends is a BadSyntax with its place."""

from __future__ import annotations

from penstock.sql.errors import BadSyntax, Place
from penstock.sqltext import tokens as spark
from penstock.sqltext.tokens import NeverEnds, Token


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    try:
        return spark.tokenize(text, start, end, extended=True)
    except NeverEnds as error:
        raise BadSyntax(error.message, Place.of(text, error.offset)) from None
