"""Which connections are accepted when max.connections is reached, and which are closed for them.

    not logged in   may use half of all places, a quarter on the inter-broker listener. If there are more, or
                    all places are taken, the oldest one is closed. Addresses with more than their share of
                    them come first, so that a flood from one address does not end other logins.
    brokers         a new connection on the inter-broker listener replaces one that has not logged in,
                    otherwise an idle one, on another listener (as in Kafka, if there are several listeners)
    all others      are rejected if all places are taken

Each decision takes constant time, however many connections there are.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Protocol

# How many connections are checked to find one to close.
_CANDIDATES = 64


class Placed(Protocol):
    """The properties of a connection that decide."""

    last_active: float

    @property
    def is_authenticated(self) -> bool: ...

    @property
    def idle(self) -> bool: ...

    @property
    def address(self) -> str: ...

    @property
    def listener_name(self) -> str: ...

    def close(self, reason: str | None) -> None: ...


class _Strangers:
    """The connections that have not logged in, the oldest first: all, and by address."""

    def __init__(self) -> None:
        self._all: OrderedDict[Placed, None] = OrderedDict()
        self._of: dict[str, OrderedDict[Placed, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Placed) -> None:
        self._all[connection] = None
        self._of.setdefault(connection.address, OrderedDict())[connection] = None

    def discard(self, connection: Placed) -> None:
        if connection not in self._all:
            return
        del self._all[connection]
        of_address = self._of[connection.address]
        del of_address[connection]
        if not of_address:
            del self._of[connection.address]

    def oldest(self) -> Placed | None:
        return next(iter(self._all), None)

    def giving_way_to(self, connection: Placed) -> Placed | None:
        """The connection to close: the oldest one of this address if the address has more than its share,
        otherwise the oldest one of another such address."""
        share = len(self._all) // len(self._of)
        own = self._of[connection.address]
        if len(own) > share:
            return next(iter(own))
        oldest = itertools.islice(self._all, _CANDIDATES)
        found = next((one for one in oldest if len(self._of[one.address]) > share), self.oldest())
        return None if found is connection else found


class Places:
    def __init__(self, most: int, protected: str | None) -> None:
        """`protected` is the inter-broker listener; None if it is the only listener."""
        self.most = most
        self._protected = protected
        self._outside, self._inside = _Strangers(), _Strangers()
        # The authenticated connections on other listeners than the inter-broker listener.
        self._others: OrderedDict[Placed, None] = OrderedDict()

    def is_protected(self, connection: Placed) -> bool:
        return connection.listener_name == self._protected

    def admits(self, connection: Placed, taken: int) -> bool:
        """Whether a new connection may stay; `taken` is the number of connections. May close another one for
        it."""
        is_protected = self.is_protected(connection)
        is_full = taken > self.most
        gives_way: Placed | None = None
        if not connection.is_authenticated:
            strangers = self._inside if is_protected else self._outside
            strangers.add(connection)
            most = max(1, self.most // (4 if is_protected else 2))
            if len(strangers) > most or (is_full and not is_protected):
                gives_way = strangers.giving_way_to(connection)
        elif not is_protected:
            self._entered(connection)
        if is_full and is_protected and gives_way is None:
            gives_way = self._outside.oldest() or self._idlest()
        if gives_way is None:
            return not is_full
        self.lost(gives_way)
        gives_way.close(f"closed in favour of another connection: max.connections={self.most}")
        return True

    def authenticated(self, connection: Placed) -> None:
        self._outside.discard(connection)
        self._inside.discard(connection)
        if not self.is_protected(connection):
            self._entered(connection)

    def lost(self, connection: Placed) -> None:
        self._outside.discard(connection)
        self._inside.discard(connection)
        self._others.pop(connection, None)

    def _entered(self, connection: Placed) -> None:
        if self._protected is not None:
            self._others[connection] = None

    def _idlest(self) -> Placed | None:
        """Of some of the oldest connections, the one that has been idle for longest."""
        seen = []
        for _ in range(min(_CANDIDATES, len(self._others))):
            connection, _ = self._others.popitem(last=False)
            self._others[connection] = None
            seen.append(connection)
        return min(seen, key=lambda one: (not one.idle, one.last_active), default=None)
