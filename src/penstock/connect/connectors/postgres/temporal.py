"""Converts dates and times in PostgreSQL's text form to numbers. Pure.

The session has `DateStyle ISO`, `TimeZone UTC` and `IntervalStyle postgres`. PostgreSQL knows years far
before and after those of Python's `datetime`, the hour 24, and infinity; `datetime` is only the fast path.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from penstock.connect.api import DataError

MICROS_PER_DAY = 86_400_000_000
# Infinity, as PostgreSQL's JDBC driver and Debezium represent it.
POSITIVE_INFINITY_MICROS = 9_223_372_036_825_200_000
NEGATIVE_INFINITY_MICROS = -9_223_372_036_832_400_000

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)(\+00)?( BC)?", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_ZONED_TIME = re.compile(r"([\d:.]+)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", re.ASCII)
_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?",
    re.ASCII,
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of any year of the proleptic Gregorian calendar; year 0 is 1 BC."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


# Debezium's dates of infinity: the driver's number of days, which does not fit its type.
POSITIVE_INFINITY_DAYS = days_from_civil(-5877611, 6, 21)
NEGATIVE_INFINITY_DAYS = days_from_civil(-5877611, 6, 22)


def date_days(text: str) -> int:
    """Days since 1970-01-01."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        pass
    if text == "infinity":
        return POSITIVE_INFINITY_DAYS
    if text == "-infinity":
        return NEGATIVE_INFINITY_DAYS
    return days_from_civil(*_civil(text))


def _civil(text: str) -> tuple[int, int, int]:
    found = _DATE.fullmatch(text)
    if not found:
        raise DataError(f"{text!r} is not a date")
    year = int(found[1])
    return (1 - year if found[4] else year), int(found[2]), int(found[3])


def time_micros(text: str) -> int:
    """Microseconds since midnight; 24:00:00 is allowed."""
    found = _TIME.fullmatch(text)
    if not found:
        raise DataError(f"{text!r} is not a time")
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return seconds * 1_000_000 + (int(found[4].ljust(6, "0")) if found[4] else 0)


def timestamp_micros(text: str) -> int:
    """Microseconds since 1970-01-01 00:00, of a timestamp without zone or in UTC."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        pass
    if text == "infinity":
        return POSITIVE_INFINITY_MICROS
    if text == "-infinity":
        return NEGATIVE_INFINITY_MICROS
    day, clock = _day_and_clock(text)
    return days_from_civil(*_civil(day)) * MICROS_PER_DAY + time_micros(clock)


def _day_and_clock(text: str) -> tuple[str, str]:
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise DataError(f"{text!r} is not a timestamp in UTC")
    return found[1] + (found[4] or ""), found[2]


def timestamp_iso(text: str, digits: int) -> str:
    """A timestamp in UTC as Java's ISO_OFFSET_DATE_TIME writes it, with this number of fractional digits."""
    if len(text) == 29 and digits == 6 and text[4] == "-" and text[26:] == "+00":
        return f"{text[:10]}T{text[11:26]}Z"  # the common case
    if text in ("infinity", "-infinity"):
        return text
    day, clock = _day_and_clock(text)
    year, month, number = _civil(day)
    whole, _, fraction = clock.partition(".")
    shown = f"-{-year:04}" if year < 0 else f"+{year}" if year > 9999 else f"{year:04}"
    tail = f".{fraction.ljust(digits, '0')}" if digits else ""
    return f"{shown}-{month:02}-{number:02}T{whole}{tail}Z"


def zoned_time_iso(text: str) -> str:
    """A time with zone, in UTC, as Java's ISO_OFFSET_TIME writes it."""
    found = _ZONED_TIME.fullmatch(text)
    if not found:
        raise DataError(f"{text!r} is not a time with time zone")
    micros = time_micros(found[1])
    offset = int(found[3]) * 3600 + int(found[4] or 0) * 60 + int(found[5] or 0)
    if micros == MICROS_PER_DAY and offset == 0:
        return "24:00:00Z"
    micros -= (offset if found[2] == "+" else -offset) * 1_000_000
    seconds, micros = divmod(micros % MICROS_PER_DAY, 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}Z"


def _interval(text: str) -> tuple[int, int, int, int]:
    """Years, months, days, microseconds: each with its own sign."""
    found = _INTERVAL.fullmatch(text)
    if not found or not text:
        raise DataError(f"{text!r} is not an interval")
    years, months, days = (int(found[at] or 0) for at in (1, 2, 3))
    if found[5] is None:
        return years, months, days, 0
    seconds = int(found[5]) * 3600 + int(found[6]) * 60 + int(found[7])
    micros = seconds * 1_000_000 + int((found[8] or "0").ljust(6, "0"))
    return years, months, days, -micros if found[4] == "-" else micros


def interval_micros(text: str) -> int:
    """Microseconds, with 365.25 / 12 days for a month, as Debezium counts."""
    years, months, days, micros = _interval(text)
    # 30.4375 days are a whole number of microseconds.
    return (years * 12 + months) * 2_629_800_000_000 + days * MICROS_PER_DAY + micros


def interval_iso(text: str) -> str:
    """`P1Y2M3DT4H5M6.78S` with all parts, as Debezium writes it."""
    years, months, days, micros = _interval(text)
    sign = "-" if micros < 0 else ""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    tail = f".{fraction:06}".rstrip("0") if fraction else ""

    def signed(number: int, after: str = "") -> str:
        return f"{sign if number or after else ''}{number}{after}"

    return f"P{years}Y{months}M{days}DT{signed(hours)}H{signed(minutes)}M{signed(seconds, tail)}S"
