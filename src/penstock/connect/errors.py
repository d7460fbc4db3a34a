"""Errors that connectors raise and that the worker reports.

PenstockError
└── ConnectError             the task fails, and is restarted with backoff up to its limit
    ├── RetriableError       the same call is retried, with backoff
    └── DataError            one record is bad: `errors.tolerance` decides
"""

from __future__ import annotations

from penstock.errors import PenstockError


class ConnectError(PenstockError):
    """A connector or the worker cannot continue."""


class RetriableError(ConnectError):
    """Something that may succeed when it is retried, such as an unavailable database or a full disk."""


class DataError(ConnectError):
    """A record that cannot be converted, transformed or written. Retrying does not help."""
