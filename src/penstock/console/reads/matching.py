"""Matches messages of a search: by text, by a regular expression, or by a field of JSON.

A field condition is `$.customer.city = Berlin`, `$.items[0].price > 9.5`, `$.note contains late`, or
`$.refund` for an existing field. Text is searched for in keys, values and headers, ignoring case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.console.reads.decoding import Part
from penstock.errors import PenstockError

KINDS = ("text", "regex", "json", "sql")
"""How to search; `sql` is done by `scanning`."""
_STEP = re.compile(r"\.([^.\[\]\s=<>!]+)|\[(\d+)\]")
_CONDITION = re.compile(
    r"\s*\$?(?P<path>[^\s=<>!]*)\s*(?:(?P<sign>=|==|!=|<=|>=|<|>|contains\b)\s*(?P<value>.+))?\Z"
)


class BadSearch(PenstockError):
    """An invalid search expression."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record that may match; `value_json` parses the decoded value when it is first needed."""

    key: Callable[[], Part]
    value: Callable[[], Part]
    raw: Sequence[bytes | None]
    """Key, value, and names and values of headers."""


Matches = Callable[[Candidate], bool]


def matcher(kind: str, text: str) -> Matches:
    """Raises BadSearch for an invalid expression. An empty text matches everything."""
    if not text:
        return lambda candidate: True
    if kind == "text":
        return _by_pattern(re.escape(text), re.IGNORECASE)
    if kind == "regex":
        try:
            return _by_pattern(text, re.NOFLAG)
        except (re.error, ValueError, RecursionError, OverflowError) as error:
            raise BadSearch(f"'{text}' is not a regular expression: {error}") from error
    if kind == "json":
        return _by_field(text)
    raise BadSearch(f"'{kind}' is not one of {', '.join(KINDS)}")


def _by_pattern(text: str, flags: re.RegexFlag) -> Matches:
    """Matches characters, not bytes: a dot is one character of any alphabet, and case folding covers all
    letters.
    """
    find = re.compile(text, flags).search
    find_ascii = _find_in_ascii(text, flags)

    def matches(candidate: Candidate) -> bool:
        for each in candidate.raw:
            if each is None:
                continue
            if find_ascii is not None and each.isascii():
                if find_ascii(each):
                    return True
            elif find(each.decode(errors="surrogateescape")):
                return True
        # A user reads values decoded with the registry, whose text is not in the bytes.
        for data, part in zip(candidate.raw[:2], (candidate.key, candidate.value), strict=False):
            if data and data[0] < 2 and find(part().text):
                return True
        return False

    return matches


def _find_in_ascii(text: str, flags: re.RegexFlag) -> Callable[[bytes], object] | None:
    """The same search on ASCII bytes, which saves decoding them; None if that is not possible."""
    if not text.isascii():
        return None
    try:
        return re.compile(text.encode(), flags).search
    except (re.error, ValueError):
        return None  # \u00fc, \N{...}, (?u): valid in text patterns only


def _by_field(text: str) -> Matches:
    found = _CONDITION.match(text)
    steps = _steps(found["path"]) if found else None
    if found is None or not steps:
        raise BadSearch(f"'{text}' is not a field of JSON: write $.customer.city = Berlin, or $.refund")
    sign, wanted = found["sign"], found["value"]
    compare = _comparison(sign, wanted.strip()) if sign else lambda value: True

    def matches(candidate: Candidate) -> bool:
        part = candidate.value()
        if part.kind in ("null", "text", "bytes"):
            return False
        try:
            node: Any = json.loads(part.text)
        except (ValueError, RecursionError):
            return False
        for step in steps:
            if isinstance(step, int):
                if not isinstance(node, list) or step >= len(node):
                    return False
            elif not isinstance(node, dict) or step not in node:
                return False
            node = node[step]
        return compare(node)

    return matches


def _steps(path: str) -> list[str | int] | None:
    path = path if path.startswith((".", "[")) else f".{path}"
    steps: list[str | int] = []
    at = 0
    for match in _STEP.finditer(path):
        if match.start() != at:
            return None
        steps.append(match[1] if match[1] is not None else int(match[2]))
        at = match.end()
    return steps if at == len(path) else None


def _comparison(sign: str, text: str) -> Callable[[Any], bool]:
    try:
        wanted: Any = json.loads(text)
    except (ValueError, RecursionError):
        wanted = text
    if sign == "contains":
        return lambda value: (
            text.strip('"').lower()
            in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).lower()
        )
    if sign in ("=", "=="):
        return lambda value: _same(value, wanted) or (isinstance(value, str) and value == text)
    if sign == "!=":
        return lambda value: not _same(value, wanted) and value != text

    def ordered(value: Any) -> bool:
        if _is_number(wanted) and _is_number(value):
            pair: tuple[Any, Any] = (value, wanted)
        elif isinstance(value, str):
            pair = (value, text.strip('"'))
        else:
            return False
        left, right = pair
        return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign])

    return ordered


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, wanted: Any) -> bool:
    """Compares as JSON: true is not 1, though it is in Python; 1 is 1.0."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in value)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(_same, value, wanted))
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
