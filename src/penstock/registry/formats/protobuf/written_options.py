"""Custom options as written in a .proto text, for options that no known file defines.

protoc rejects an option whose definition is not imported; Confluent's registry, which does not look up
definitions, keeps it as written. Here such options are removed from the text that protoc gets, assigned to
their element, and printed with the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.registry.formats.protobuf.options import Place, indented, listed, quote, quote_bytes

_TOKEN = re.compile(
    r"""
      (?P<space>  \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<word>   [A-Za-z_0-9.]+(?:(?<=[0-9.][eE])[+-][0-9]+)? )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_CLOSING = {"{": "}", "<": ">"}
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int
    end: int

    def is_symbol(self, text: str) -> bool:
        return self.kind == "symbol" and self.text == text


@dataclass(eq=False, slots=True)
class Brackets:
    """The options of a field, an enum value or a range: `[a, b]`."""

    start: int
    end: int
    items: list[tuple[int, int]] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WrittenOption:
    """`(name) = value` somewhere in a text."""

    name: str
    value: str
    """The printed text."""
    place: Place
    """The column of its name, from 0, as protoc counts: in bytes, a tab up to the next multiple of eight."""
    name_start: int
    start: int
    end: int
    """The range of the whole option; of a statement, from `option` to the semicolon."""
    brackets: Brackets | None


class WrittenOptions:
    """The custom options of a text, and the text without some of them."""

    def __init__(self, text: str) -> None:
        # A character for each byte, so that offsets are columns.
        self._text = text.encode().decode("latin-1")
        self.options: list[WrittenOption] = []
        self._line, self._column, self._seen = 0, 0, 0
        self._read(
            [
                Token(match.lastgroup or "", match[0], match.start(), match.end())
                for match in _TOKEN.finditer(self._text)
                if match.lastgroup != "space"
            ]
        )

    def _read(self, tokens: Sequence[Token]) -> None:
        i, begins = 0, True
        while i < len(tokens):
            token = tokens[i]
            if begins and token.text == "option":
                end = _end(tokens, i + 1, ";")
                if end < len(tokens):
                    self._add(tokens[i + 1 : end], token.start, tokens[end].end, None)
                i = end
            elif token.is_symbol("["):
                i = self._read_brackets(tokens, i)
            begins = i < len(tokens) and tokens[i].kind == "symbol" and tokens[i].text in ";{}"
            i += 1

    def _read_brackets(self, tokens: Sequence[Token], opening: int) -> int:
        close = _end(tokens, opening + 1, "]")
        if close == len(tokens):
            return close
        brackets = Brackets(tokens[opening].start, tokens[close].end)
        i = opening + 1
        while i < close:
            end = min(_end(tokens, i, ","), close)
            if end < close:
                brackets.commas.append(tokens[end].start)
            if end > i:
                item = tokens[i:end]
                brackets.items.append((item[0].start, item[-1].end))
                self._add(item, item[0].start, item[-1].end, brackets)
            i = end + 1
        return close

    def _add(self, tokens: Sequence[Token], start: int, end: int, brackets: Brackets | None) -> None:
        if not tokens or not tokens[0].is_symbol("("):
            return
        sign = next((i for i, token in enumerate(tokens) if token.is_symbol("=")), len(tokens))
        try:
            value = _Value(tokens[sign + 1 :]).text()
        except (ValueError, IndexError):
            return  # protoc reports the error
        name = "".join(token.text for token in tokens[:sign])
        place = self._place(tokens[0].start)
        self.options.append(WrittenOption(name, value, place, tokens[0].start, start, end, brackets))

    def _place(self, offset: int) -> Place:
        """Call it in the order of the text."""
        for character in self._text[self._seen : offset]:
            if character == "\n":
                self._line, self._column = self._line + 1, 0
            elif character == "\t":
                self._column += 8 - self._column % 8
            else:
                self._column += 1
        self._seen = offset
        return self._line, self._column

    def without(self, gone: Iterable[WrittenOption]) -> str:
        """The text with spaces instead of these options, so that the rest keeps its line and column."""
        characters = list(self._text)

        def blank(start: int, end: int) -> None:
            characters[start:end] = [c if c in "\n\t\r" else " " for c in characters[start:end]]

        lists: dict[Brackets, set[int]] = {}
        for option in gone:
            if option.brackets is None:
                blank(option.start, option.end)
            else:
                lists.setdefault(option.brackets, set()).add(option.start)
        for brackets, starts in lists.items():
            if len(starts) == len(brackets.items):
                blank(brackets.start, brackets.end)
                continue
            first = True
            for i, (start, end) in enumerate(brackets.items):
                stays = start not in starts
                if not stays:
                    blank(start, end)
                if i > 0 and (first or not stays):
                    blank(brackets.commas[i - 1], brackets.commas[i - 1] + 1)
                first = first and not stays
        return _as_text("".join(characters))

    def from_the_root(self, names: Collection[str]) -> str:
        """The text with these names made absolute: `(a.b)` becomes `(.a.b)`."""
        parts, at = [], 0
        for option in self.options:
            if option.name in names:
                parts.append(self._text[at : option.name_start + 1])
                at = option.name_start + 1
        return _as_text(".".join([*parts, self._text[at:]]))


def _as_text(text: str) -> str:
    return text.encode("latin-1").decode()


def _end(tokens: Sequence[Token], start: int, symbol: str) -> int:
    """The index of the symbol outside of inner brackets, or of the bracket that closes around it; else
    the end.
    """
    depth = 0
    for i in range(start, len(tokens)):
        text = tokens[i].text if tokens[i].kind == "symbol" else ""
        if depth == 0 and text == symbol:
            return i
        if text and text in "{[(":
            depth += 1
        elif text and text in "}])":
            if depth == 0:
                return i
            depth -= 1
    return len(tokens)


class _Value:
    """The value of an option, parsed from its tokens and printed like the value of a defined option."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def text(self) -> str:
        text = self._value(0)
        if self._next != len(self._tokens):
            raise ValueError
        return text

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _comes(self, marks: str) -> bool:
        token = self._tokens[self._next]
        return token.kind == "symbol" and token.text in marks

    def _value(self, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise ValueError
        token = self._take()
        if token.kind == "string":
            return self._string(token)
        if token.kind == "word":
            return token.text
        if token.text == "-":
            return "-" + self._take().text
        if token.text == "[":
            return self._list(depth)
        if token.text in _CLOSING:
            return self._message(_CLOSING[token.text], depth)
        raise ValueError

    def _string(self, first: Token) -> str:
        parts = [first.text]
        while self._next < len(self._tokens) and self._tokens[self._next].kind == "string":
            parts.append(self._take().text)
        value = b"".join(_unescaped(part[1:-1].encode("latin-1")) for part in parts)
        try:
            return quote(value.decode())
        except UnicodeDecodeError:
            return quote_bytes(value)

    def _list(self, depth: int) -> str:
        items = []
        while not self._comes("]"):
            items.append(self._value(depth + 1))
            if self._comes(","):
                self._take()
        self._take()
        return listed(items)

    def _message(self, closing: str, depth: int) -> str:
        entries: dict[str, list[str]] = {}
        while not self._comes(closing):
            token = self._take()
            name = token.text
            if token.is_symbol("["):  # an extension, or the URL of an Any
                while not self._comes("]"):
                    name += self._take().text
                name += self._take().text
            elif token.kind != "word":
                raise ValueError
            if self._comes(":"):
                self._take()
            entries.setdefault(name, []).append(self._value(depth + 1))
            if self._comes(",;"):
                self._take()
        self._take()
        if not entries:
            return "{\n}"
        lines = [f"{name}: {each[0] if len(each) == 1 else listed(each)}" for name, each in entries.items()]
        return "{\n" + indented(",\n".join(lines)) + "}"


def _unescaped(raw: bytes) -> bytes:
    def replaced(match: re.Match[bytes]) -> bytes:
        octal, short, four, eight, letter = match.groups()
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
        if short is not None:
            return bytes([int(short, 16)])
        if four is not None or eight is not None:
            return chr(int(four or eight, 16)).encode()
        return _LETTERS.get(letter, letter)

    return _ESCAPE.sub(replaced, raw)
