"""The maximum length of a client's string that is written to records: 32,767 bytes, the limit of int16
lengths.

Newer requests can have longer strings. They are rejected when they arrive: a record that cannot be written
would fail all other decisions of the same step.
"""

from __future__ import annotations

from penstock.errors import InvalidRequest

_MOST_BYTES = 32767
_SURELY_FITS = _MOST_BYTES // 4  # characters; none has more than four bytes


def fits(text: str | None) -> bool:
    return text is None or len(text) <= _SURELY_FITS or len(text.encode()) <= _MOST_BYTES


def check_fits(what: str, text: str | None) -> None:
    """`what` as in "a member id"."""
    if not fits(text):
        raise InvalidRequest(f"{what} of more than {_MOST_BYTES} bytes")
