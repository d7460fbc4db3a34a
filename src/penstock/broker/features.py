"""The features in ApiVersions responses (KIP-584): the supported and the finalized versions.

Clients use them to choose the transaction protocol (KIP-890) and to see whether the newer group protocols are
available.
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
    """Clients before ApiVersions 4 reject a feature whose minimum version is 0 (KIP-1022)."""
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
