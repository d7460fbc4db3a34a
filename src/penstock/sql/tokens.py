"""The words of a statement with their places: Spark's rules of quoting and comments, and bodies between `$$`.

sqlglot has a tokenizer too, but it swallows what follows words that it takes for commands (SHOW, EXPLAIN),
joins words, and does not say where a string that never ends began. A shell must know that at every line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from penstock.sql.errors import BadSyntax, Place

Kind = Literal["word", "quoted", "string", "number", "body", "variable", "symbol", "end"]

_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<body>    \$\$ .*? \$\$ )
    | (?P<variable> \$\{ [^}\n]* \} )
    | (?P<string>  [rR] (?: '[^']*' | "[^"]*" )
                 | [xX]? (?: '(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+" ) )
    | (?P<quoted>  `(?:[^`]|``)*+` )
    | (?P<number>  (?:\d+(?:\.\d*)?|\.\d+) (?:[eE][+-]?\d+)? (?:[bB][dD]|[lLsSyYdDfF])? (?!\w) )
    | (?P<word>    \w+ )
    | (?P<symbol>  . )
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_NEVER_ENDS = {
    "'": "this string never ends: it has no closing '",
    '"': 'this string never ends: it has no closing "',
}


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


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    end = len(text) if end is None else end
    tokens: list[Token] = []
    while start < end:
        found = _TOKEN.match(text, start, end)
        assert found is not None  # the last alternative takes any character
        kind, written, begin, start = found.lastgroup, found.group(), start, found.end()
        match kind:
            case "space":
                pass
            case "comment":
                start = _end_of_comment(text, begin, end)
            case "word":
                tokens.append(Token("word", written, begin, start, written.upper()))
            case "number" | "variable":
                tokens.append(Token("number" if kind == "number" else "variable", written, begin, start))
            case "string":
                tokens.append(Token("string", _unquoted(written), begin, start))
            case "quoted":
                tokens.append(Token("quoted", written[1:-1].replace("``", "`"), begin, start))
            case "body":
                tokens.append(Token("body", written[2:-2], begin, start))
            case _:
                if written in _NEVER_ENDS:
                    raise BadSyntax(_NEVER_ENDS[written], Place.of(text, begin))
                if written == "`":
                    raise BadSyntax("this name never ends: it has no closing `", Place.of(text, begin))
                if text.startswith("$$", begin, end):
                    raise BadSyntax("this body never ends: it has no closing $$", Place.of(text, begin))
                tokens.append(Token("symbol", written, begin, start))
    return tokens


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _end_of_comment(text: str, start: int, end: int) -> int:
    """Comments nest, as in Spark."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start, end):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise BadSyntax("this comment never ends: it has no closing */", Place.of(text, start))


def _unquoted(written: str) -> str:
    if written[0] in "rR":
        return written[2:-1]
    written = written[1:] if written[0] in "xX" else written
    quote = written[0]
    # A doubled quote must not be taken for one that a backslash escapes: that is undone part by part.
    parts = re.split(r"(\\.)", written[1:-1], flags=re.DOTALL)
    joined = "".join(part if at % 2 else part.replace(quote * 2, quote) for at, part in enumerate(parts))
    return _ESCAPE.sub(_unescaped, joined) if "\\" in joined else joined


def _unescaped(found: re.Match[str]) -> str:
    code = found.group(1)
    if code[0] in "uU" and len(code) > 1:
        point = int(code[1:], 16)
        return chr(point) if point <= 0x10FFFF else "?"
    if len(code) == 3:
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)
