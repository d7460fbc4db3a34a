"""The bytes that all connections together may hold in buffers of their own (queued.max.request.bytes).

A connection charges what it buffers, and a request that waits for its answer what it keeps of its frame. One
that needs more while the budget is spent waits for a grant; one waiter at a time gets an overdraft of its
frame, so that half-read frames can never wait for each other in a ring. The overdraft goes on until the frame
is no longer held: what is held is thus bounded by the limit, the frame that crossed it and one more.
"""

from __future__ import annotations

from typing import Protocol


class Borrower(Protocol):
    def granted(self) -> None:
        """The budget has room for this borrower's next charge; called from `release`."""
        ...


class Budget:
    __slots__ = ("_overdraft", "_starved", "_waiters", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiters: dict[Borrower, None] = {}
        self._starved: dict[Borrower, None] = {}
        self._overdraft: object = None  # the borrower or the request that holds the frame

    @property
    def spent(self) -> bool:
        return self.used >= self.limit

    def charge(self, amount: int) -> None:
        """Counts bytes that are held already or may be held: never refuses."""
        self.used += amount

    def request(self, borrower: Borrower) -> bool:
        """Whether `borrower` may charge for the rest of its frame now; if not, `granted` is called later."""
        if self.used < self.limit or borrower is self._overdraft:
            return True
        if self._overdraft is None:
            self._overdraft = borrower
            return True
        self._waiters[borrower] = None
        return False

    def await_room(self, borrower: Borrower) -> None:
        """`granted` is called when the budget is no longer spent, and not by overdraft."""
        self._starved[borrower] = None

    def hand_on(self, borrower: Borrower, holder: object) -> None:
        """The frame of `borrower` is held by a request now; it is `finished` when that is answered."""
        if borrower is self._overdraft:
            self._overdraft = holder

    def finished(self, holder: object) -> None:
        """The frame of this borrower or request is not held any more."""
        if holder is self._overdraft:
            self._overdraft = None
            self._grant()

    def forget(self, borrower: Borrower) -> None:
        self._waiters.pop(borrower, None)
        self._starved.pop(borrower, None)
        self.finished(borrower)

    def release(self, amount: int) -> None:
        self.used -= amount
        if self._waiters:
            self._grant()
        while self._starved and self.used < self.limit:
            borrower = next(iter(self._starved))
            del self._starved[borrower]
            borrower.granted()

    def _grant(self) -> None:
        while self._waiters:
            if self.used < self.limit:
                self._next().granted()
            elif self._overdraft is None:
                self._overdraft = borrower = self._next()
                borrower.granted()
            else:
                return

    def _next(self) -> Borrower:
        borrower = next(iter(self._waiters))
        del self._waiters[borrower]
        return borrower
