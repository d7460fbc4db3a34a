"""The words of Spark's SQL with their places, as sqlglot's tokenizer for Spark reads them, in kinds of ours.

All that reads SQL begins here: continuous SQL, the SQL files of pipelines, expressions of row patterns.

To sqlglot some words have a meaning (SHOW and EXPLAIN swallow what follows, GROUP BY is one word); here none
has. Three things it cannot do are done here:

* Comments nest in Spark. sqlglot loses count at `/*/*` and `*/*/`, so it sees only what is between comments.
* `.5`, `1L` and `0x1F` are one word each, `1.a` and `1e5-1` are three. sqlglot splits or joins them, so what
  is around a number is cut again.
* Of a string that never ends it does not always say where it began. A shell must know that at every line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

from sqlglot import Token as Read
from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from penstock.errors import PenstockError

Kind = Literal["word", "quoted", "string", "number", "body", "variable", "symbol", "end"]

_OTHER_MARK = re.compile(r"[^\w\s!-~]")
_AROUND_NUMBERS = re.compile(
    r"""
      (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+) (?:[eE][+-]?[0-9]+)? (?:[bB][dD]|[lLsSyYdDfF])? (?!\w) )
    | (?P<word>   \w+ )
    | (?P<symbol> . )
    """,
    re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_OPENING = re.compile(r"""(?:\s|--[^\r\n]*+)*+ [rRxX]? (['"`]|\$[${])""", re.VERBOSE)
_NEVER_ENDS = {
    "'": "this string never ends: it has no closing '",
    '"': 'this string never ends: it has no closing "',
    "`": "this name never ends: it has no closing `",
    "$$": "this body never ends: it has no closing $$",
}


class NeverEnds(PenstockError):
    """A string, name, body or comment without its end; `offset` is where it begins."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class _Tokenizer(Spark.Tokenizer):
    """Spark's quotes and escapes; each mark separately, and each word only a word."""

    KEYWORDS = {}
    NUMERIC_LITERALS = {}
    SINGLE_TOKENS = dict.fromkeys(Spark.Tokenizer.SINGLE_TOKENS, TokenType.UNKNOWN)
    COMMENTS = ["--"]
    STRING_ESCAPES = ["\\", "'", '"']
    BYTE_STRING_ESCAPES = STRING_ESCAPES
    HEX_STRINGS = []
    # Not HEX_STRINGS: what is in those must be right, and in x'${variable}' it is not yet.
    BYTE_STRINGS = [(prefix + quote, quote) for prefix in "xX" for quote in "'\""]

    def __init__(self, text: str) -> None:
        if marks := _OTHER_MARK.findall(text):
            # Otherwise they would be taken for parts of a name: `a≤b`.
            self.SINGLE_TOKENS = self.SINGLE_TOKENS | dict.fromkeys(marks, TokenType.UNKNOWN)  # type: ignore[misc]
        super().__init__("spark")


class _WithBodies(_Tokenizer):
    RAW_STRINGS = [*_Tokenizer.RAW_STRINGS, ("$$", "$$")]


class _WithVariables(_WithBodies):
    RAW_STRINGS = [*_WithBodies.RAW_STRINGS, ("${", "}")]


for _each in (_Tokenizer, _WithBodies, _WithVariables):
    # sqlglot adds these to every dialect; to Spark, they are neither a comment nor a string with a prefix.
    _each._COMMENTS.pop("{#", None)
    for _prefix in ("n'", "N'", 'n"', 'N"'):
        _each._FORMAT_STRINGS.pop(_prefix, None)


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    """The name, string or body without its quotes; otherwise as it is written."""
    start: int
    end: int
    upper: str = ""
    """Of a word: in capitals, to compare with keywords."""

    def is_symbol(self, symbol: str) -> bool:
        return self.kind == "symbol" and self.text == symbol

    @property
    def names(self) -> bool:
        """It can be the name of something."""
        return self.kind == "word" or self.kind == "quoted"


def tokenize(text: str, start: int = 0, end: int | None = None, *, extended: bool = False) -> list[Token]:
    """The tokens of `text[start:end]`, without blanks and comments. `extended`: with `$$bodies$$` and
    `${variables}`, which continuous SQL has and Spark has not.
    """
    tokens: list[Token] = []
    dialect = _WithVariables if extended else _Tokenizer
    _add(text, start, len(text) if end is None else end, tokens, dialect)
    return tokens


def _add(text: str, start: int, end: int, tokens: list[Token], dialect: type[_Tokenizer]) -> None:
    while start < end:
        start = _up_to_comment(text, start, end, tokens, dialect)


def _up_to_comment(text: str, start: int, end: int, tokens: list[Token], dialect: type[_Tokenizer]) -> int:
    """Adds the tokens before the next comment, and gives where it ends."""
    look = start
    while True:
        edge = text.find("/*", look, end)
        cut = end if edge < 0 else edge + 2
        read, complete = _read(text[start:cut], dialect)
        comment = None if edge < 0 and look == start else _comment_in(read)
        if comment is not None or cut == end:
            break
        # This `/*` is inside of a string or after `--`. Twice as far, lest many of them take long.
        look = cut + (cut - start)
    for token in read[:comment]:
        begin, after = start + token.start, start + token.end + 1
        if token.token_type is TokenType.UNKNOWN:
            tokens.append(Token("symbol", token.text, begin, after))
        elif token.token_type in (TokenType.VAR, TokenType.NUMBER):
            _add_words(text, begin, after, tokens)
        elif token.token_type is TokenType.IDENTIFIER:
            tokens.append(Token("quoted", token.text, begin, after))
        elif text[begin] != "$":
            tokens.append(Token("string", token.text, begin, after))
        elif text[begin + 1] == "$":
            tokens.append(Token("body", token.text, begin, after))
        elif "\n" not in token.text:
            tokens.append(Token("variable", text[begin:after], begin, after))
        else:
            return _only_a_dollar(text, begin, end, tokens)
    if comment is not None:
        return _end_of_comment(text, start + read[comment].start, end)
    if complete:
        return end
    found = _OPENING.match(text, start + read[-1].end + 1 if read else start, end)
    assert found is not None  # nothing else can lack its end
    if found[1] == "${":
        return _only_a_dollar(text, found.start(1), end, tokens)
    raise NeverEnds(_NEVER_ENDS[found[1]], found.start(1))


def _read(text: str, dialect: type[_Tokenizer]) -> tuple[list[Read], bool]:
    """The tokens, and whether these are all: otherwise what follows them never ends."""
    tokenizer = dialect(text)
    try:
        return tokenizer.tokenize(text), True
    except TokenError:
        return tokenizer.tokens, False


def _comment_in(read: list[Read]) -> int | None:
    """The index of the first `/` with a `*` right after it."""
    for at, (one, two) in enumerate(pairwise(read)):
        if one.text == "/" and two.text == "*" and one.end == one.start == two.start - 1 == two.end - 1:
            return at
    return None


def _end_of_comment(text: str, start: int, end: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start, end):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise NeverEnds("this comment never ends: it has no closing */", start)


def _add_words(text: str, start: int, end: int, tokens: list[Token]) -> None:
    """What sqlglot takes for one word or number; `.5` and `0x1F` have begun with the token before."""
    last = tokens[-1] if tokens and tokens[-1].end == start else None
    digit = text[start] in "0123456789"
    if last is not None and (last.kind == "number" or (digit and last.is_symbol("."))):
        start = tokens.pop().start
    elif not digit:
        word = text[start:end]
        tokens.append(Token("word", word, start, end, word.upper()))
        return
    for found in _AROUND_NUMBERS.finditer(text, start, end):
        kind = cast(Kind, found.lastgroup)
        upper = found.group().upper() if kind == "word" else ""
        tokens.append(Token(kind, found.group(), *found.span(), upper))


def _only_a_dollar(text: str, at: int, end: int, tokens: list[Token]) -> int:
    """`${` that its line does not close starts no variable, nor does any after it: the statement is wrong."""
    tokens.append(Token("symbol", "$", at, at + 1))
    _add(text, at + 1, end, tokens, _WithBodies)
    return end
