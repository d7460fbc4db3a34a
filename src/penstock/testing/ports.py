"""Finds a port that stays free while a broker restarts.

Not one of the kernel's ephemeral ports: while the broker is down, a client that keeps connecting could get
the broker's port as its own local port, connect to itself, and keep the port in use.
"""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 10_000, 65_535
# The default range on Linux, if it cannot be read.
_EPHEMERAL = (32_768, 60_999)


def free_port(host: str = "127.0.0.1") -> int:
    """A port outside the ephemeral range that nothing on `host` listens on at the moment."""
    low, high = _ephemeral_range()
    candidates = [*range(_LOWEST, min(low, _HIGHEST)), *range(max(high + 1, _LOWEST), _HIGHEST)]
    # Seeded by the system, not by the test run: parallel workers share one seed and one machine.
    port: int
    for port in random.SystemRandom().sample(candidates, min(200, len(candidates))):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _ephemeral_range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = file.read().split()
            return int(low), int(high)
    except (OSError, ValueError):
        return _EPHEMERAL
