"""What connectors raise, and what the worker refuses.

PenstockError
└── ConnectError             the task fails, and is restarted with backoff up to its limit
    ├── RetriableError       the same call is retried, with backoff
    └── DataError            one record is bad: `errors.tolerance` decides
"""

from __future__ import annotations

from penstock.errors import PenstockError


class ConnectError(PenstockError):
    """Something that a connector or the worker cannot continue with."""


class RetriableError(ConnectError):
    """Something that may work when it is tried again: a database that is away, a full disk."""


class DataError(ConnectError):
    """A record that cannot be converted, transformed or written, whatever is tried."""
