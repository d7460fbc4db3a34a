"""The memory budget for the buffers of all connections (queued.max.request.bytes).

A connection charges the bytes that it buffers; a request that waits for its response charges what it keeps of
its frame. A connection that needs more while the budget is spent waits for a grant. One waiter at a time gets
an overdraft for its frame, so that partially read frames cannot deadlock. The overdraft ends when the frame
is released. So the memory in use is at most the limit, the frame that crossed it, and one more frame.
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
        self._overdraft: object = None  # the borrower or the request that has the overdraft

    @property
    def spent(self) -> bool:
        return self.used >= self.limit

    def charge(self, amount: int) -> None:
        """Counts bytes that are already held, or that a grant allows; never fails."""
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
        """Calls `granted` when the budget is no longer spent; never grants an overdraft."""
        self._starved[borrower] = None

    def hand_on(self, borrower: Borrower, holder: object) -> None:
        """A request now holds the frame of `borrower`; call `finished` when the request has its response."""
        if borrower is self._overdraft:
            self._overdraft = holder

    def finished(self, holder: object) -> None:
        """The frame of this borrower or request was released."""
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
