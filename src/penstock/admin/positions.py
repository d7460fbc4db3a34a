"""Start positions: `earliest`, `latest`, an offset, `@TIME`, or `-N` from the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import click

from penstock.admin.cluster import EARLIEST, LATEST, Cluster
from penstock.admin.failure import CommandFailed

_AGO = re.compile(r"-(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Position:
    """A start position that was not yet resolved to an offset."""

    kind: Literal["earliest", "latest", "offset", "time", "last"]
    value: int = 0


def parse_position(text: str, now_ms: int) -> Position:
    """Parses `text`. A usage error lists the allowed forms."""
    if text in ("earliest", "beginning"):
        return Position("earliest")
    if text in ("latest", "end"):
        return Position("latest")
    if text.startswith("@"):
        return Position("time", parse_time(text[1:], now_ms))
    if text.isdecimal():
        return Position("offset", int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position("last", int(text[1:]))
    raise click.BadParameter(
        f"'{text}' is not earliest, latest, an offset, @TIME or -N (the last N)", param_hint="'--from'"
    )


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of `text`: ms, ISO 8601 (local time unless it has an offset), or `-15m` ago."""
    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    if text.isdecimal() and int(text) < 2**63:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(
            f"'{text}' is not a time: give ISO 8601 (2024-05-01T12:00:00Z), ms since 1970, or -15m, -2h, -1d"
        ) from error


def iso_time(timestamp_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds; the number itself where the calendar ends."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def resolve_start(
    position: Position, topic: str, earliest: dict[int, int], latest: dict[int, int], at_time: dict[int, int]
) -> dict[int, int]:
    """The first offset to read in each partition. `at_time` has -1 if no record is that late.

    If only some partitions have an offset, the others start at the nearest one they have; an offset that no
    partition has is an error.
    """
    if position.kind == "earliest":
        return dict(earliest)
    if position.kind == "latest":
        return dict(latest)
    if position.kind == "last":
        return {p: max(earliest[p], latest[p] - position.value) for p in latest}
    if position.kind == "time":
        return {p: at_time[p] if at_time[p] >= 0 else latest[p] for p in latest}
    offset = position.value
    if not any(earliest[p] <= offset <= latest[p] for p in latest):
        held = ", ".join(f"{topic}-{p}: {earliest[p]} to {latest[p]}" for p in list(latest)[:4])
        raise CommandFailed(f"offset {offset} is out of range ({held}).")
    return {p: min(max(offset, earliest[p]), latest[p]) for p in latest}


def find_range(
    cluster: Cluster, topic: str, partitions: Sequence[int], position: Position, *, read_committed: bool
) -> tuple[dict[int, int], dict[int, int]]:
    """The first offset to read and the current end offset of each partition."""
    earliest = {p: o.offset for p, o in cluster.offsets(topic, partitions, EARLIEST).items()}
    found = cluster.offsets(topic, partitions, LATEST, read_committed=read_committed)
    latest = {p: o.offset for p, o in found.items()}
    at_time: dict[int, int] = {}
    if position.kind == "time":
        at_time = {p: o.offset for p, o in cluster.offsets(topic, partitions, position.value).items()}
    return resolve_start(position, topic, earliest, latest, at_time), latest
