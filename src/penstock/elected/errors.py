"""Errors of servers that elect a leader.

PenstockError
└── ElectedError
    ├── CannotStart       the server cannot run as configured
    ├── NoLongerLeader    another server leads; nothing was written
    ├── RecordTooLarge    the cluster rejects a record of this size
    └── StoreUncertain    it is unknown whether a write took place
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
