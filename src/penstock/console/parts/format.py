"""Formats numbers and times for pages."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from penstock.admin.words import human_bytes


def count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    return "-" if number is None else human_bytes(number)


def rate(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}/s" if number >= 10 or number == 0 else f"{number:.1f}/s"


def seconds(number: float | None) -> str:
    """An age: 3.2 s, 5 min, 2 h, 4 d."""
    if number is None:
        return "-"
    for most, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if number < most:
            return f"{number / divisor:.1f} {unit}" if number < 10 else f"{number / divisor:.0f} {unit}"
    return f"{number / 86_400:.0f} d"


def topic_link(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"


def link(page: str, **query: str) -> str:
    """The URL of a page of this site with query parameters; values are always escaped."""
    given = {name: value for name, value in query.items() if value}
    return f"{page}?{urlencode(given)}" if given else page
