"""The elected controller: one broker at a time, with a controller epoch that each of its writes checks.

The broker that creates the ephemeral node first is elected; the same transaction increments the controller
epoch. Every write checks that epoch, so a controller that was replaced without knowing it is fenced. The
controller runs the planners on each new image and writes the changes that they return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.controller.change_log import summaries
from penstock.controller.cluster import ClusterController
from penstock.controller.elections import PartitionChange, reconcile
from penstock.errors import ApiError, NotController
from penstock.metadata import layout
from penstock.metadata.image import NO_LEADER, ClusterImage
from penstock.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    Set,
    StoreUnavailable,
)

Key = tuple[str, int]
Planner = Callable[[ClusterImage], Iterable[PartitionChange]]
Plan = Callable[[ClusterImage], Mapping[Key, PartitionChange | ApiError | None]]

_RETRY_SECONDS = 0.2
_MAX_CONFLICTS = 10

log = logging.getLogger(__name__)


class ElectedController:
    """`planners` return the changes that an image needs; the first planner that returns any has priority."""

    def __init__(
        self,
        controller: ClusterController,
        store: MetadataStore,
        broker_id: int,
        unclean: Callable[[str], bool],
        planners: Sequence[Planner] = (),
    ) -> None:
        self._controller = controller
        self._store = store
        self._broker_id = broker_id
        self._planners: tuple[Planner, ...] = (lambda image: reconcile(image, unclean), *planners)
        self._epoch: int | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()  # the controller makes one write after the other

    @property
    def epoch(self) -> int:
        """The epoch of this controller; NotController if this broker is not the controller."""
        if self._epoch is None or self._controller.image.controller_id != self._broker_id:
            raise NotController(f"broker {self._controller.image.controller_id} is the controller")
        return self._epoch

    @property
    def is_held(self) -> bool:
        return self._epoch is not None and self._controller.image.controller_id == self._broker_id

    def start(self) -> None:
        """Called when the broker is registered: from now on it may be elected."""
        self._controller.subscribe(lambda old, new: self._wake.set())
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def session_lost(self) -> None:
        self._epoch = None

    def wake(self) -> None:
        self._wake.set()

    async def stop(self) -> None:
        """Resign, so that another broker is elected immediately."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._epoch is not None:
            try:
                await self._resign(self._epoch)
            except (BadVersion, NoNode, StoreUnavailable):
                pass  # another broker is the controller, or the node will expire with the session
        self._epoch = None

    async def _resign(self, epoch: int) -> None:
        """Delete the controller node if it is still the one of this epoch: each new controller increments the
        epoch in the transaction that creates its node."""
        await self._store.multi([Check(layout.CONTROLLER_EPOCH, epoch), Delete(layout.CONTROLLER)])

    async def write(self, ops: Sequence[Op]) -> None:
        """Run one transaction that also checks the controller epoch."""
        async with self._lock:
            await self._store.multi([Check(layout.CONTROLLER_EPOCH, self.epoch), *ops])

    async def carry_out(self, plan: Plan) -> dict[Key, ApiError | None]:
        """Plan and store a request. Returns the error of each partition, or None if it is as requested.

        After a conflict with another change, parts that are already stored count; the rest is planned again.
        """
        results: dict[Key, ApiError | None] = {}
        try:
            for _ in range(_MAX_CONFLICTS):
                self.epoch  # noqa: B018 - raises NotController if this broker is not the controller
                found = plan(self._controller.image)
                changes = []
                for key, outcome in found.items():
                    if isinstance(outcome, PartitionChange):
                        changes.append(outcome)
                    elif key not in results:
                        results[key] = outcome
                try:
                    await self._store_all(changes, results)
                    return results
                except (BadVersion, NoNode) as error:
                    log.info("metadata changed meanwhile, planning again: %s", error)
                    await self._controller.replan(error)
                    # Errors are taken from the plan with the newest image.
                    results = {key: error for key, error in results.items() if error is None}
        except StoreUnavailable as error:
            raise NotController(str(error)) from error
        raise NotController("the metadata changes too fast")

    async def _store_all(
        self, changes: Sequence[PartitionChange], results: dict[Key, ApiError | None]
    ) -> None:
        """Store the changes in parts. Stored ones are added to `results` and logged, even if a later part
        fails."""
        stored: list[PartitionChange] = []
        try:
            for part in self._controller.transactions_of(changes):
                await self._store_changes(part)
                stored += part
        finally:
            results.update(((change.topic, change.new.index), None) for change in stored)
            for level, line in summaries(stored):
                log.log(level, line)

    async def _store_changes(self, changes: Sequence[PartitionChange]) -> None:
        """Store the changes in one transaction, built now with the current topics."""
        async with self._lock:
            ops = self._controller.change_ops(changes)
            await self._store.multi([Check(layout.CONTROLLER_EPOCH, self.epoch), *ops])

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except (BadVersion, NodeExists, NoNode) as error:
                # Metadata has changed since the plan; that change triggers the next run.
                log.info("metadata changed meanwhile, planning again: %s", error)
                await self._again(partial(self._controller.replan, error))
            except (StoreUnavailable, NotController) as error:
                log.info("the controller is waiting: %s", error)
                await self._again(lambda: asyncio.sleep(_RETRY_SECONDS))
            except Exception:  # the border: a bug in one plan must not leave the cluster without elections
                log.exception("the controller failed")
                await self._again(lambda: asyncio.sleep(1))

    async def _again(self, pause: Callable[[], Awaitable[None]]) -> None:
        try:
            await pause()
        except StoreUnavailable:
            await asyncio.sleep(_RETRY_SECONDS)
        self._wake.set()

    async def _look(self) -> None:
        image = self._controller.image
        if self._broker_id not in image.brokers:
            return  # an unregistered broker must not become the controller
        if image.controller_id == NO_LEADER:
            await self._take()
        elif image.controller_id == self._broker_id and self._epoch is None:
            # It belongs to our former session, and would expire with it at some time. The mirror may be
            # behind.
            await self._resign(self._controller.controller_epoch())
        if not self.is_held:
            return
        for planner in self._planners:
            await self._store_all(list(planner(self._controller.image)), {})

    async def _take(self) -> None:
        version = self._controller.version_of(layout.CONTROLLER_EPOCH)
        epoch = version + 1
        value = layout.encode({"broker": self._broker_id, "epoch": epoch})
        await self._store.multi(
            [
                Set(layout.CONTROLLER_EPOCH, layout.epoch_value(epoch), version),
                Create(layout.CONTROLLER, value, ephemeral=True),
            ]
        )
        self._epoch = epoch
        log.info("broker %d elected as controller with epoch %d", self._broker_id, self._epoch)
