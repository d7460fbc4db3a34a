"""The elected controller: one broker at a time, with an epoch that each of its writes checks.

Whoever creates the ephemeral node first holds it; in the same transaction the controller epoch grows by one.
Every write checks that epoch, so one that was replaced without knowing it changes nothing more.
The work itself is to look at each new image and to write what the planners find to be changed.
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
    """`planners` say what an image asks for; the first that asks for anything is served first."""

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
        self._lock = asyncio.Lock()  # the controller writes one thing after the other

    @property
    def epoch(self) -> int:
        """The epoch of this controller; NotController when another broker is."""
        if self._epoch is None or self._controller.image.controller_id != self._broker_id:
            raise NotController(f"broker {self._controller.image.controller_id} is the controller")
        return self._epoch

    @property
    def is_held(self) -> bool:
        return self._epoch is not None and self._controller.image.controller_id == self._broker_id

    def start(self) -> None:
        """The broker is registered: from here on it may be elected."""
        self._controller.subscribe(lambda old, new: self._wake.set())
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def session_lost(self) -> None:
        self._epoch = None

    def wake(self) -> None:
        self._wake.set()

    async def stop(self) -> None:
        """Resign, so that another is elected at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._epoch is not None:
            try:
                await self._resign(self._epoch)
            except (BadVersion, NoNode, StoreUnavailable):
                pass  # another holds it, or it goes with the session
        self._epoch = None

    async def _resign(self, epoch: int) -> None:
        """Delete the controller's node if it is still the one of this epoch: each new controller raises the
        epoch in the transaction that creates its own."""
        await self._store.multi([Check(layout.CONTROLLER_EPOCH, epoch), Delete(layout.CONTROLLER)])

    async def write(self, ops: Sequence[Op]) -> None:
        """One transaction of the controller."""
        async with self._lock:
            await self._store.multi([Check(layout.CONTROLLER_EPOCH, self.epoch), *ops])

    async def carry_out(self, plan: Plan) -> dict[Key, ApiError | None]:
        """Store what a request comes to; the error of each partition, None where it is as wanted.

        What was stored before another's change came in between counts; the rest is planned again.
        """
        results: dict[Key, ApiError | None] = {}
        try:
            for _ in range(_MAX_CONFLICTS):
                self.epoch  # noqa: B018 - NotController unless it is held
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
                    # Errors are those of the newest image.
                    results = {key: error for key, error in results.items() if error is None}
        except StoreUnavailable as error:
            raise NotController(str(error)) from error
        raise NotController("the metadata changes too fast")

    async def _store_all(
        self, changes: Sequence[PartitionChange], results: dict[Key, ApiError | None]
    ) -> None:
        """In parts; `results` and the log have those that were stored, also where not all could be."""
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
        """One transaction; built when it is its turn, with the topics as they are then."""
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
                # Another has changed what this was planned with; its change wakes us, or has done so.
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
            return  # who is not registered yet, or no more, is not to decide
        if image.controller_id == NO_LEADER:
            await self._take()
        elif image.controller_id == self._broker_id and self._epoch is None:
            # Of our former session; it would go with that one, some time. What the mirror shows may be old.
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
