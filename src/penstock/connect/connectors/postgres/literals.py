"""Parses the text forms of arrays, hstore, points, bits and bytes. Pure."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import Any

from penstock.connect.api import DataError

_BOUNDS = re.compile(r"(\[[-+]?\d+:[-+]?\d+\])+=", re.ASCII)
_ITEM = {
    delimiter: re.compile(rf'"((?:[^"\\]|\\.)*)"|((?:[^"{{}}\\{delimiter}]|\\.)+)', re.DOTALL)
    for delimiter in ",;"
}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)
_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_BITS = re.compile(r"[01]*", re.ASCII)
_MONEY = re.compile(r"[^0-9.]")
_MAX_DIMENSIONS = 6


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def array_items(text: str, delimiter: str = ",") -> list[Any]:
    """The items of an array literal as text, None for NULL; the items of inner arrays are lists."""
    bounds = _BOUNDS.match(text)
    at = bounds.end() if bounds else 0
    items, end = _array(text, at, _ITEM[delimiter], delimiter, 1)
    if end != len(text):
        raise DataError(f"{_short(text)} is not an array: text follows its end")
    return items


def _array(text: str, at: int, item: re.Pattern[str], delimiter: str, depth: int) -> tuple[list[Any], int]:
    if not text.startswith("{", at) or depth > _MAX_DIMENSIONS:
        raise DataError(f"{_short(text)} is not an array")
    at += 1
    if text.startswith("}", at):
        return [], at + 1
    items: list[Any] = []
    while True:
        if text.startswith("{", at):
            inner, at = _array(text, at, item, delimiter, depth + 1)
            items.append(inner)
        else:
            found = item.match(text, at)
            if not found:
                raise DataError(f"{_short(text)} is not an array")
            at = found.end()
            quoted, bare = found.groups()
            if quoted is not None:
                items.append(_plain(quoted))
            else:
                items.append(None if bare.upper() == "NULL" else _plain(bare))
        after = text[at : at + 1]
        at += 1
        if after == "}":
            return items, at
        if after != delimiter:
            raise DataError(f"{_short(text)} is not an array")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def hstore_items(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        found = _HSTORE.match(text, at)
        if not found:
            raise DataError(f"{_short(text)} is not an hstore")
        key, value = found.groups()
        pairs[_plain(key)] = None if value is None else _plain(value)
        at = found.end()
    return pairs


def bytea(text: str) -> bytes:
    """With `bytea_output hex`."""
    try:
        if not text.startswith("\\x"):
            raise ValueError
        return bytes.fromhex(text[2:])
    except ValueError:
        raise DataError(f"{_short(text)} is not a bytea in hexadecimal form") from None


def bits(text: str) -> bytes:
    """Little-endian, without leading zeros, as Debezium's Bits."""
    if not _BITS.fullmatch(text):
        raise DataError(f"{_short(text)} is not a bit string")
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def point(text: str) -> dict[str, Any]:
    """Debezium's Point: coordinates and well-known binary."""
    found = _POINT.fullmatch(text)
    if not found:
        raise DataError(f"{_short(text)} is not a point")
    x, y = float(found[1]), float(found[2])
    return {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


def money(text: str) -> Decimal:
    """With `lc_monetary C`: -$1,234.50."""
    digits = _MONEY.sub("", text)
    if not digits:
        raise DataError(f"{_short(text)} is not an amount of money")
    number = Decimal(digits)
    return -number if "-" in text or text.startswith("(") else number


def unscaled(number: Decimal) -> tuple[int, bytes]:
    """Scale and two's complement of the unscaled number, big-endian, as java.math.BigInteger writes it."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    # Exact: arithmetic would round to the precision of the decimal context.
    whole = int(Decimal((sign, digits, 0)))
    return -exponent, whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)
