"""The features that ApiVersions shows (KIP-584): which versions this broker knows, and which are in force.

Clients decide by them how they do transactions (KIP-890) and whether they may use the newer group protocols.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.wire.message import Message


class Feature(NamedTuple):
    name: str
    highest: int
    in_force: int


FEATURES = (
    Feature("group.version", 1, 1),
    Feature("share.version", 1, 1),
    Feature("transaction.version", 2, 2),
)


def supported(version: int) -> list[Message]:
    """Clients before ApiVersions 4 refuse a feature whose least version is 0 (KIP-1022)."""
    least = 0 if version >= 4 else 1
    return [
        Message(name=feature.name, min_version=least, max_version=feature.highest) for feature in FEATURES
    ]


def finalized() -> list[Message]:
    return [
        Message(name=feature.name, max_version_level=feature.in_force, min_version_level=feature.in_force)
        for feature in FEATURES
        if feature.in_force > 0
    ]
