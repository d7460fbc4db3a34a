"""Numbers of single precision, which Python has as doubles."""

from __future__ import annotations

import math
import struct


def single(number: float) -> float:
    """The nearest number of single precision."""
    try:
        found: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        found = math.copysign(math.inf, number)
    return found


def shortest_single(number: float) -> str:
    """The shortest text that is this number of single precision: 0.1, not 0.10000000149011612."""
    wanted = single(number)
    for digits in (6, 7, 8):
        text = f"{number:.{digits}g}"
        if single(float(text)) == wanted:
            return text
    return f"{number:.9g}"
