"""Java's SimpleDateFormat patterns, as far as topic names and timestamps use them."""

from __future__ import annotations

import datetime
import re

from penstock.connect.errors import DataError

_TOKEN = re.compile(r"'(?:[^']|'')*'|([a-zA-Z])\1*|.", re.DOTALL)
_STRPTIME = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "M": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%d",
    "HH": "%H", "H": "%H", "hh": "%I", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S",
    "SSS": "%f", "SSSSSS": "%f",
    "a": "%p", "EEE": "%a", "EEEE": "%A", "DDD": "%j", "Z": "%z", "X": "%z", "XX": "%z", "XXX": "%z",
    "z": "%Z",
}  # fmt: skip


def _parts(pattern: str) -> list[tuple[str, bool]]:
    """Splits a pattern into pieces, each with a flag: part of the date, or literal text."""
    found = []
    for match in _TOKEN.finditer(pattern):
        text = match.group(0)
        if text.startswith("'"):
            found.append((text[1:-1].replace("''", "'") or "'", False))
        elif match.group(1):
            if text not in _STRPTIME:
                raise DataError(f"the date pattern {pattern!r} has {text!r}, which is not supported")
            found.append((text, True))
        else:
            found.append((text, False))
    return found


def format_date(pattern: str, at: datetime.datetime) -> str:
    out = []
    for text, meant in _parts(pattern):
        if not meant:
            out.append(text)
        elif text == "SSS":
            out.append(f"{at.microsecond // 1000:03d}")
        elif text in ("X", "XXX", "XX"):
            out.append("Z" if at.utcoffset() in (None, datetime.timedelta()) else at.strftime("%z"))
        elif text in ("M", "d", "H", "m", "s"):
            out.append(at.strftime(_STRPTIME[text]).lstrip("0") or "0")
        else:
            out.append(at.strftime(_STRPTIME[text]))
    return "".join(out)


def parse_date(pattern: str, text: str) -> datetime.datetime:
    if not pattern:
        raise DataError("format is required to read a time from text")
    layout = "".join(_STRPTIME[part] if meant else part.replace("%", "%%") for part, meant in _parts(pattern))
    try:
        at = datetime.datetime.strptime(text, layout)
    except ValueError as error:
        raise DataError(
            f"Could not parse timestamp: value ({text}) does not match pattern ({pattern})"
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
