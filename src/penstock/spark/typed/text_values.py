"""Converts JSON and CSV text to values of Spark's types, one at a time and exactly: the reference
implementation.

`text.py` parses whole blocks with Arrow's readers, and uses this for what they reject. Values are not
coerced: a text in place of a number, or a number out of range, raises Misfit with the reason.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T

from penstock.spark.errors import NotTyped

Convert = Callable[[Any], Any]

_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_LARGEST_FLOAT = 3.4028235677973366e38  # half a step above the largest float
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?", re.ASCII)
# Spark's to_json writes them so, as JSON has no numbers for them.
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_MICROS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_MICROS = (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC) - _EPOCH) // _MICROSECOND
"""The times that Python and SQL can say: years 1 to 9999."""


class Misfit(ValueError):
    """A value that is not of its column's type."""


def misfit(where: str, value: Any, wanted: str) -> Misfit:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return Misfit(f"{where} is {text if len(text) <= 60 else text[:57] + '…'}, not {wanted}")


def check_types(kind: T.DataType, *, nested: bool, place: str = "") -> None:
    """Raises NotTyped if text of this type cannot be read; `nested` if structs, arrays and maps are
    allowed.
    """
    if isinstance(kind, T.StructType):
        if place and not nested:
            raise NotTyped(f"{place} is a struct, and a line of CSV has plain columns only")
        if not kind.fields:
            raise NotTyped(f"{place or 'it'} has no columns")
        if len({field.name for field in kind.fields}) != len(kind.fields):
            raise NotTyped(f"{place or 'it'} has two columns of one name")
        for field in kind.fields:
            check_types(field.dataType, nested=nested, place=f"{place}.{field.name}".lstrip("."))
    elif isinstance(kind, (T.ArrayType, T.MapType)):
        if not nested:
            raise NotTyped(f"{place} is {kind.simpleString()}, and a line of CSV has plain columns only")
        if isinstance(kind, T.MapType):
            check_types(kind.keyType, nested=False, place=f"the key of {place}")
        inner = kind.valueType if isinstance(kind, T.MapType) else kind.elementType
        check_types(inner, nested=nested, place=f"{place}[]")
    elif not isinstance(kind, _SCALARS):
        raise NotTyped(f"{place} is {kind.simpleString()}, which cannot be read from text")


_SCALARS = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


# JSON


def read_json(data: bytes) -> Any:
    """The JSON of a record, with fractions as Decimal. Misfit has the reason if it is invalid."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Misfit("it is not JSON: its bytes are not UTF-8") from None
    try:
        return json.loads(text, parse_float=Decimal)
    except RecursionError:
        raise Misfit("it is JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"it is not JSON: {error}") from None
    except (ValueError, decimal.InvalidOperation):
        # An integer of thousands of digits, or an exponent outside of Decimal's range.
        try:
            return json.loads(text, parse_float=_huge, parse_int=_huge)
        except (ValueError, RecursionError) as error:
            raise Misfit(f"it is not JSON: {error}") from None


def _huge(text: str) -> Decimal:
    try:
        return Decimal(text)
    except decimal.InvalidOperation:
        return Decimal("Infinity")


def described(place: str) -> str:
    return f"'{place}'" if place else "the value"


def json_object(kind: T.StructType, place: str, converter: Callable[[T.DataType, str], Convert]) -> Convert:
    """Converts objects to structs; `converter` creates the conversion of a field from its type and path."""
    where = described(place)
    fields = [
        (field.name, converter(field.dataType, f"{place}.{field.name}".lstrip("."))) for field in kind.fields
    ]

    def struct(value: Any) -> Any:
        if not isinstance(value, dict):
            raise misfit(where, value, "an object")
        return {name: convert(value[name]) for name, convert in fields if value.get(name) is not None}

    return struct


def json_array(kind: T.ArrayType, place: str, converter: Callable[[T.DataType, str], Convert]) -> Convert:
    where = described(place)
    item = converter(kind.elementType, f"{place}[]")

    def array(value: Any) -> Any:
        if not isinstance(value, list):
            raise misfit(where, value, "an array")
        return [None if each is None else item(each) for each in value]

    return array


def from_json(kind: T.DataType, place: str = "") -> Convert:
    """Converts a value of `read_json` that is not null to one that Arrow accepts for this type."""
    where = described(place)
    if isinstance(kind, T.StructType):
        return json_object(kind, place, from_json)
    if isinstance(kind, T.ArrayType):
        return json_array(kind, place, from_json)
    if isinstance(kind, T.MapType):
        key = from_text(kind.keyType, f"the key of {place}")
        below = from_json(kind.valueType, f"{place}{{}}")

        def mapping(value: Any) -> Any:
            if not isinstance(value, dict):
                raise misfit(where, value, "an object")
            return [(key(name), None if each is None else below(each)) for name, each in value.items()]

        return mapping
    return _json_scalar(kind, where)


def _json_scalar(kind: T.DataType, where: str) -> Convert:
    if isinstance(kind, T.BooleanType):
        return lambda value: value if isinstance(value, bool) else _raise(misfit(where, value, "a boolean"))
    if isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType, T.LongType)):
        return lambda value: _whole(value, kind, where)
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return lambda value: _float(value, kind, where)
    if isinstance(kind, T.DecimalType):
        return lambda value: _decimal(value, kind, where)
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        return lambda value: _micros(value, where)
    text = from_text(kind, where=where)
    wanted = {"date": "a date", "binary": "bytes in base64"}.get(kind.typeName(), "a string")
    return lambda value: text(value) if isinstance(value, str) else _raise(misfit(where, value, wanted))


def _raise(error: Misfit) -> Any:
    raise error


def _whole(value: Any, kind: T.DataType, where: str) -> int:
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20 and value == int(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise misfit(where, value, "a whole number")
    bits = _BITS[type(kind)]
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise misfit(where, value, f"a {kind.simpleString()}: it is too large")
    return value


def _float(value: Any, kind: T.DataType, where: str) -> float:
    if isinstance(value, float):
        return value  # NaN or Infinity
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if not isinstance(value, (int, Decimal)) or isinstance(value, bool):
        raise misfit(where, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or (isinstance(kind, T.FloatType) and abs(number) >= _LARGEST_FLOAT):
        raise misfit(where, value, f"a {kind.simpleString()}: it is too large")
    return number


def _decimal(value: Any, kind: T.DecimalType, where: str) -> Decimal:
    if isinstance(value, str):
        value = Decimal(value.strip()) if _NUMBER.fullmatch(value.strip()) else value
    elif isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if not isinstance(value, Decimal):
        raise misfit(where, value, "a number")
    context = decimal.Context(prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=context)
    except (decimal.Inexact, decimal.InvalidOperation):
        raise misfit(where, value, f"a {kind.simpleString()}: it has more digits") from None


def _micros(value: Any, where: str) -> int:
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20 and value == int(value):
        value = int(value)
    micros = None
    if isinstance(value, int) and not isinstance(value, bool):
        micros = value * 1000
    elif isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            micros = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            pass
    if micros is None or not FIRST_MICROS <= micros <= LAST_MICROS:
        raise misfit(where, value, "a time (ISO 8601, or milliseconds since 1970)")
    return micros


# Plain text: columns of CSV, keys of maps


def from_text(kind: T.DataType, place: str = "", *, where: str = "") -> Convert:
    """Converts a text that is not empty."""
    where = where or (f"'{place}'" if place else "the value")
    if isinstance(kind, T.StringType):
        return lambda text: _utf8(text, where)
    if isinstance(kind, T.BinaryType):
        return lambda text: base64_bytes(text, where)
    if isinstance(kind, T.DateType):
        return lambda text: _date(text, where)
    if isinstance(kind, T.BooleanType):

        def truth(text: str) -> bool:
            if (found := _TRUTHS.get(text.strip(" \t"))) is None:
                raise misfit(where, text, "true or false")
            return found

        return truth
    scalar = _json_scalar(kind, where)
    times = isinstance(kind, (T.TimestampType, T.TimestampNTZType))

    def number(text: str) -> Any:
        bare = text.strip(" \t")
        if _WHOLE.fullmatch(bare):
            return scalar(int(bare))
        if not times and _NUMBER.fullmatch(bare):
            return scalar(Decimal(bare))
        return scalar(bare)

    return number


def _utf8(text: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Misfit(f"{where} has half a surrogate pair, which is not text") from None
    return text


def base64_bytes(text: str, where: str = "the value") -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise misfit(where, text, "bytes in base64") from None


def _date(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text.strip(" \t"))
    except ValueError:
        raise misfit(where, text, "a date (ISO 8601)") from None
