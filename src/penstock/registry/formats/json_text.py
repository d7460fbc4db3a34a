"""Parses JSON strictly, and writes it as Java's Jackson does.

Numbers keep what Java would keep: 64-bit floats in Java's notation (1.0E10), integers of any size.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from penstock.registry.formats.schema import InvalidSchema

MAX_NESTING = 400
"""The maximum nesting depth of JSON values. A type takes up to four levels of JSON in Avro."""

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def load(text: str, *, comments: bool = False, decimals: bool = False) -> Any:
    """The value of a JSON text; `comments` allows Java's comments, as Avro's parser does."""
    try:
        value = _loads(text, decimals)
    except json.JSONDecodeError as error:
        if not comments or "/" not in text:
            raise InvalidSchema(f"Not JSON: {error}") from None
        bare = _STRING_OR_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)
        try:
            value = _loads(bare, decimals)
        except (ValueError, RecursionError) as again:
            raise InvalidSchema(f"Not JSON: {again}") from None
    except RecursionError:
        raise InvalidSchema(f"The JSON is nested more than {MAX_NESTING} deep") from None
    except ValueError as error:
        raise InvalidSchema(f"Not JSON: {error}") from None
    _check_nesting(value)
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise InvalidSchema("The JSON holds half of a surrogate pair, which is not a character") from None
    return value


def _loads(text: str, decimals: bool) -> Any:
    return json.loads(
        text, parse_constant=_no_constant, parse_float=_exact if decimals else _finite, parse_int=_integer
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"The number {text[:40]} is too large")
    return value


def _exact(text: str) -> Decimal:
    if not math.isfinite(float(text)):
        raise ValueError(f"The number {text[:40]} is too large")
    return Decimal(text)


def _integer(text: str) -> int:
    if len(text) > 400:
        raise ValueError(f"The number {text[:40]}… is too large")
    return int(text)


def _check_nesting(value: Any) -> None:
    """Breadth first, so that the check itself cannot overflow the stack."""
    level = [value]
    for _ in range(MAX_NESTING):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(v for v in item.values() if isinstance(v, (dict, list)))
            elif isinstance(item, list):
                below.extend(v for v in item if isinstance(v, (dict, list)))
        if not below:
            return
        level = below
    raise InvalidSchema(f"The JSON is nested more than {MAX_NESTING} deep")


def quote(text: str) -> str:
    """A JSON string as Jackson writes it: characters outside ASCII as they are."""
    return str(encode_basestring(text))


def dump(value: Any, *, ordered: bool = False) -> str:
    """Compact JSON; `ordered` sorts the keys of objects."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Decimal):
        return java_decimal(value)
    if isinstance(value, dict):
        items = sorted(value.items()) if ordered else value.items()
        return "{" + ",".join(f"{quote(k)}:{dump(v, ordered=ordered)}" for k, v in items) + "}"
    return "[" + ",".join(dump(v, ordered=ordered) for v in value) + "]"


def java_double(value: float) -> str:
    """Double.toString: plain between 10^-3 and 10^7, else one digit before the point and an E."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = repr(value)
        return plain if "e" not in plain else format(Decimal(plain), "f")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def java_decimal(value: Decimal) -> str:
    """BigDecimal.toString: the digits as they were written, so 1.0 and 1.00 stay apart."""
    return str(value)
