"""Parses the syntax of RE2, as far as it is useful for topic names, to a tree.

Not supported: Unicode classes by name (\\p{...}). Groups do not capture, as their matches are not needed,
and laziness has no effect, because the whole name must match.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidRegularExpression

_LAST = 0x10FFFF
_MOST_REPEATS = 1000  # RE2's limit
_Ranges = tuple[tuple[int, int], ...]

_DIGITS: _Ranges = ((48, 57),)
_WORD: _Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: _Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES: dict[str, _Ranges] = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_POSIX: dict[str, _Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGITS,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of these ranges; with `fold`, in either case."""

    ranges: _Ranges
    negated: bool = False
    fold: bool = False

    def __contains__(self, char: str) -> bool:
        forms = {char, char.lower(), char.upper()} if self.fold else (char,)
        codes = [ord(form) for form in forms if len(form) == 1]
        return self.negated != any(low <= code <= high for code in codes for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Edge:
    """A position between characters: ^ and $ (of a line, if `multiline`), \\b, \\B."""

    kind: str
    multiline: bool = False

    def holds(self, before: str, after: str) -> bool:
        match self.kind:
            case "^":
                return before == "" or (self.multiline and before == "\n")
            case "$":
                return after == "" or (self.multiline and after == "\n")
        return (_is_word(before) != _is_word(after)) == (self.kind == "b")


def edge_like(char: str) -> str:
    """A representative of all characters that an Edge does not distinguish."""
    return char if char in ("", "\n") else "w" if _is_word(char) else "-"


def _is_word(char: str) -> bool:
    return char != "" and any(low <= ord(char) <= high for low, high in _WORD)


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    least: int
    most: int | None


Node = Characters | Edge | Sequence | Alternatives | Repeat


def parse(pattern: str) -> Node:
    """Raises InvalidRegularExpression."""
    parser = _Parser(pattern)
    tree = parser.alternatives(frozenset())
    if not parser.done:
        raise parser.wrong("a ) without (")
    return tree


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._pos = 0

    @property
    def done(self) -> bool:
        return self._pos >= len(self._text)

    def wrong(self, what: str) -> InvalidRegularExpression:
        shown = self._text if len(self._text) <= 100 else self._text[:100] + "…"
        return InvalidRegularExpression(f"{shown!r} at {self._pos}: {what}")

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._pos):
            return False
        self._pos += len(text)
        return True

    def _next(self) -> str:
        if self.done:
            raise self.wrong("it ends too early")
        self._pos += 1
        return self._text[self._pos - 1]

    def alternatives(self, flags: frozenset[str]) -> Node:
        items = []
        while True:
            # Flags that are set in one alternative apply to those after it.
            item, flags = self._sequence(flags)
            items.append(item)
            if not self._take("|"):
                return items[0] if len(items) == 1 else Alternatives(tuple(items))

    def _sequence(self, flags: frozenset[str]) -> tuple[Node, frozenset[str]]:
        items: list[Node] = []
        while not self.done and self._text[self._pos] not in "|)":
            if self._take("\\Q"):
                quoted, _, rest = self._text[self._pos :].partition("\\E")
                self._pos = len(self._text) - len(rest)
                items += [_one(char, flags) for char in quoted]
                continue
            if self._take("("):
                group = self._group(flags)
                if isinstance(group, frozenset):
                    flags = group
                    continue
                items.append(self._repeated(group))
            else:
                items.append(self._repeated(self._atom(flags)))
        return Sequence(tuple(items)), flags

    def _repeated(self, item: Node) -> Node:
        count = self._count()
        if count is None:
            return item
        self._take("?")
        here = self._pos
        if self._count() is not None:
            self._pos = here
            raise self.wrong("a repetition of a repetition")
        return Repeat(item, *count)

    def _count(self) -> tuple[int, int | None] | None:
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return count
        if not self._take("{"):
            return None
        start = self._pos
        inner, closed, _ = self._text[start:].partition("}")
        low, comma, high = inner.partition(",")
        if not closed or not _is_number(low) or not (high == "" or _is_number(high)):
            self._pos = start - 1  # a brace that is not a repetition is a character
            return None
        self._pos = start + len(inner) + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise self.wrong(f"the repetition {{{inner}}} is not possible")
        return least, most

    def _group(self, flags: frozenset[str]) -> Node | frozenset[str]:
        """After the bracket: a group, or flags for the rest of the one around it."""
        if self._take("?"):
            if self._take("P<") or (not self._text.startswith(("<=", "<!"), self._pos) and self._take("<")):
                name, closed, _ = self._text[self._pos :].partition(">")
                if not closed or not name.replace("_", "a").isalnum():
                    raise self.wrong("a group's name is not right")
                self._pos += len(name) + 1
            else:
                flags, ended = self._flags(flags)
                if ended:
                    return flags
        item = self.alternatives(flags)
        if not self._take(")"):
            raise self.wrong("a ) is missing")
        return item

    def _flags(self, flags: frozenset[str]) -> tuple[frozenset[str], bool]:
        now = set(flags)
        on = True
        while True:
            match self._next():
                case ":":
                    return frozenset(now), False
                case ")":
                    return frozenset(now), True
                case "-" if on:
                    on = False
                case ("i" | "m" | "s" | "U") as flag:
                    now = now | {flag} if on else now - {flag}
                case _:
                    raise self.wrong("this kind of group is not supported")

    def _atom(self, flags: frozenset[str]) -> Node:
        match char := self._next():
            case ".":
                return Characters(((0, 9), (11, _LAST)) if "s" not in flags else ((0, _LAST),))
            case "^" | "$":
                return Edge(char, "m" in flags)
            case "*" | "+" | "?":
                raise self.wrong(f"{char} has nothing to repeat")
            case "[":
                return self._set(flags)
            case "\\":
                return self._escaped(flags)
        return _one(char, flags)

    def _escaped(self, flags: frozenset[str]) -> Node:
        match char := self._next():
            case "b" | "B":
                return Edge(char)
            case "A":
                return Edge("^")
            case "z":
                return Edge("$")
            case "C":
                return Characters(((0, _LAST),))
        if char.lower() in _CLASSES:
            return Characters(_CLASSES[char.lower()], negated=char.isupper())
        return _one(chr(self._code(char)), flags)

    def _code(self, char: str) -> int:
        """The character of an escape: a backslash and `char`."""
        if char == "x":
            digits = self._text[self._pos : self._pos + 2]
            self._pos += len(digits)
            if digits[:1] == "{":
                rest, closed, _ = self._text[self._pos - 1 :].partition("}")
                self._pos += len(rest)
                digits = rest if closed else ""
            try:
                code = int(digits, 16)
            except ValueError:
                raise self.wrong("a \\x without a number") from None
            if not 0 <= code <= _LAST:
                raise self.wrong("no such character")
            return code
        if char in _CONTROL:
            return _CONTROL[char]
        if char.isalnum():
            raise self.wrong(f"\\{char} is not supported")
        return ord(char)

    def _set(self, flags: frozenset[str]) -> Characters:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            first = False
            if self._take("[:"):
                ranges += self._posix()
                continue
            low = self._member()
            if isinstance(low, tuple):
                ranges += low
                continue
            high: int | _Ranges = low
            if self._text.startswith("-", self._pos) and not self._text.startswith("-]", self._pos):
                self._pos += 1
                high = self._member()
            if isinstance(high, tuple) or high < low:
                raise self.wrong("a range ends before it begins")
            ranges.append((low, high))
        return Characters(tuple(ranges), negated, "i" in flags)

    def _posix(self) -> _Ranges:
        negated = self._take("^")
        name, closed, _ = self._text[self._pos :].partition(":]")
        if not closed or name not in _POSIX:
            raise self.wrong("no such class of characters")
        self._pos += len(name) + 2
        return _complement(_POSIX[name]) if negated else _POSIX[name]

    def _member(self) -> int | _Ranges:
        char = self._next()
        if char != "\\":
            return ord(char)
        char = self._next()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return _complement(ranges) if char.isupper() else ranges
        return self._code(char)


def _one(char: str, flags: frozenset[str]) -> Characters:
    return Characters(((ord(char), ord(char)),), fold="i" in flags)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _complement(ranges: _Ranges) -> _Ranges:
    found = []
    start = 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, _LAST))
