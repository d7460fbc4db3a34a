"""What fails among servers that elect a leader.

PenstockError
└── ElectedError
    ├── CannotStart       the server cannot run as it was asked to
    ├── NoLongerLeader    another server leads; nothing was written
    ├── RecordTooLarge    the cluster refuses a record of this size
    └── StoreUncertain    whether a write took place is unknown
"""

from __future__ import annotations

from penstock.errors import PenstockError


class ElectedError(PenstockError):
    """The root of these errors."""


class CannotStart(ElectedError):
    """The server cannot run: its topic, its cluster or its port are not as they must be."""


class NoLongerLeader(ElectedError):
    """Another server leads now: what was to be written is not in the topic."""


class RecordTooLarge(ElectedError):
    """The cluster does not take a record of this size."""


class StoreUncertain(ElectedError):
    """The cluster did not say in time whether it took a write."""
