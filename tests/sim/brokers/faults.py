"""What goes wrong, by the seed: kills, losses of power, stops, cuts, parts of the network apart,
ZooKeeper away, slow and full disks, clocks that jump, clients that die.

What was acknowledged survives the loss of all but one in-sync replica, however they die. A broker that
lost power may lack what it had acknowledged, and stays in sync for the controller until it is back or its
session ends; so until it is back, each partition keeps another in-sync replica whole and at work, except
where flush.messages is 1 everywhere: there nothing may be lost though all of them lose power at once.
Otherwise any number of brokers may be killed, stopped and cut off at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.metadata.image_reader import ImageReader
from tests.sim.brokers.consumers import Chain
from tests.sim.brokers.node import Node

if TYPE_CHECKING:
    from tests.sim.brokers.world import World


class Faults:
    def __init__(self, world: World, chosen: Sequence[str] | None = None) -> None:
        """`chosen` are the names of the kinds that there are to be, without it a mixture by the seed."""
        self.world = world
        self.rng = world.rng
        self.loop = world.loop
        every: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3),
            (self._lose_power, 2),
            (self._lose_all_power, 1),
            (self._shut_down, 1),
            (self._stop, 3),
            (self._cut, 6),
            (self._slow_connection, 5),
            (self._strand, 3),
            (self._slow_verification, 1),
            (self._part, 2),
            (self._no_zookeeper, 2),
            (self._slow_zookeeper, 2),
            (self._exile, 1),
            (self._doom, 1),
            (self._slow_disk, 2),
            (self._fail_sync, 1),
            (self._fill_disk, 1),
            (self._new_chain, 2),
            (self._jump, 1),
        ]
        # Each seed has its own mixture, so that some meet only few kinds of faults, often.
        self.kinds = [(kind, weight * self.rng.choice((0, 0.3, 1, 3))) for kind, weight in every]
        if chosen is not None:
            known = {kind.__name__.removeprefix("_"): kind for kind, _ in every}
            self.kinds = [(known[name], 1.0) for name in chosen]
        self.apart = {node.id: 0.0 for node in world.nodes}  # until when
        self.last_until = 0.0  # what has begun and is not to be healed before
        self.pause_s = self.rng.choice((0.15, 0.4, 1.0, 2.0))

    async def run(self, seconds: float) -> None:
        end = self.loop.now + seconds
        await asyncio.sleep(self.rng.random() * 2)
        kinds, weights = [kind for kind, _ in self.kinds], [weight for _, weight in self.kinds]
        while self.loop.now < end:
            await asyncio.sleep(self.rng.random() * 2 * self.pause_s)
            if any(weights):
                self.rng.choices(kinds, weights)[0]()
        await asyncio.sleep(max(0.0, self.last_until - self.loop.now))
        self.heal()

    def heal(self) -> None:
        self.world.network.heal()
        self.loop.disk_is_slow = 0.0
        for node in self.world.nodes:
            if node.zookeeper is not None:
                node.zookeeper.reconnect()
            node.fs.failing_syncs = 0
            node.fs.is_full = False
            if node.process is not None:
                node.process.stopped_until = 0.0
            if any(one.log.failed is not None for one in node.partitions()):
                node.kill()
            if not node.is_running:
                node.start()

    def _node(self) -> Node | None:
        running = [node for node in self.world.nodes if node.is_running]
        return self.rng.choice(running) if running else None

    def _restart(self, node: Node) -> None:
        """Some time later."""

        def start() -> None:
            if not node.is_running:
                node.start()

        self.loop.call_later(self.rng.random() * self.rng.choice((0.2, 2, 10)), start)

    # brokers

    def _may_fail(self, node: Node, *, power: bool = False) -> bool:
        """Whether each partition keeps an in-sync replica that is whole, where others have lost power."""
        if self.world.is_synced:
            return True
        lost = {one.id for one in self.world.nodes if one.lost_power}
        if power:
            lost.add(node.id)
        if not lost:
            return True
        whole = {one.id for one in self.world.nodes if one is not node and self._is_well(one)} - lost
        reader = ImageReader()
        nodes = self.world.ensemble.tree.nodes
        image = reader.read(nodes, nodes)
        return all(
            not lost & set(partition.isr) or whole & set(partition.isr)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    def _is_well(self, node: Node) -> bool:
        process, zookeeper = node.process, node.zookeeper
        return (
            process is not None
            and node.is_settled
            and zookeeper is not None
            and not zookeeper.away
            and process.stopped_until <= self.loop.now
            and self.apart[node.id] <= self.loop.now
        )

    def _kill(self) -> None:
        node = self._node()
        if node is not None and self._may_fail(node):
            node.kill()
            self._restart(node)

    def _lose_power(self) -> None:
        node = self._node()
        if node is not None and self._may_fail(node, power=True):
            node.kill(power=True)
            self._restart(node)

    def _lose_all_power(self) -> None:
        if self.world.is_synced:
            for node in self.world.nodes:
                if node.is_running:
                    node.kill(power=True)
                    self._restart(node)

    def _shut_down(self) -> None:
        node = self._node()
        if node is not None and node.started and self._may_fail(node):
            node.stop()
            process = node.process

            def start() -> None:
                if node.process is process:
                    self.loop.call_later(1, start)  # it takes its time
                elif not node.is_running:
                    node.start()

            self.loop.call_later(self.rng.random() * 5, start)

    def _stop(self) -> None:
        """SIGSTOP, and SIGCONT later."""
        node = self._node()
        if node is not None and node.process is not None and self._may_fail(node):
            seconds = self.rng.random() * self.rng.choice((0.3, 1.5, 9))
            self.world.note(f"{node.name} stands still for {seconds:.2f} s")
            node.process.stopped_until = self.loop.now + seconds

    # the network

    def _connection(self) -> object:
        """Between two brokers mostly: there requests are sent again by another connection."""
        network = self.world.network
        node = self._node()
        if node is None or node.process is None:
            return None
        between = [
            side for side in network.between(node.process) if side.other.process.name.startswith("broker")
        ]
        sides = between if between and self.rng.random() < 0.7 else network.between(node.process)
        return self.rng.choice(sides) if sides else None

    def _cut(self) -> None:
        side = self._connection()
        if side is not None:
            self.world.network.cut(side, self.rng.choice((0.01, 0.5, 3)))  # type: ignore[arg-type]

    def _slow_connection(self) -> None:
        side = self._connection()
        if side is not None:
            self.world.network.slow(side, self.rng.random() * 4)  # type: ignore[arg-type]

    def _strand(self) -> None:
        """Requests arrive after their sender has lost the connection and sent them again by another."""
        side = self._connection()
        if side is not None:
            late = self.rng.random() * self.rng.choice((0.1, 2, 8))
            self.world.network.strand(side, self.rng.random() * late, late)  # type: ignore[arg-type]

    def _slow_verification(self) -> None:
        """What a broker asks coordinators of transactions takes long, and their markers do not."""
        node = self._node()
        if node is None or node.process is None:
            return
        seconds = self.rng.random() * 2
        for side in self.world.network.between(node.process):
            if side.other.client_id.endswith("-transactions"):
                self.world.network.slow(side, seconds)

    def _part(self) -> None:
        one, other = self.rng.sample(self.world.nodes, 2)
        if not (self._may_fail(one) and self._may_fail(other)):
            return
        self._keep_apart(one, other, self.rng.random() * self.rng.choice((1, 8)))

    def _keep_apart(self, one: Node, other: Node, seconds: float) -> None:
        self.apart[one.id] = self.apart[other.id] = self.loop.now + seconds
        self.world.note(f"{one.name} and {other.name} are apart for {seconds:.2f} s")
        self.world.network.part(one.name, other.name, seconds)

    def _no_zookeeper(self) -> None:
        node = self._node()
        if node is not None and self._may_fail(node):
            self._disconnect(node, self.rng.random() * self.rng.choice((1, 10)))

    def _disconnect(self, node: Node, seconds: float) -> None:
        zookeeper = node.zookeeper
        if zookeeper is not None:
            self.world.note(f"{node.name} has no ZooKeeper for {seconds:.2f} s")
            zookeeper.disconnect()
            self.loop.call_later(seconds, zookeeper.reconnect)

    def _slow_zookeeper(self) -> None:
        """Its answers come late, or later than the broker waits for them."""
        node = self._node()
        if node is not None and node.zookeeper is not None and self._may_fail(node):
            seconds = self.rng.random() * self.rng.choice((0.5, 3, 9))
            self.world.note(f"{node.name} gets no answers of ZooKeeper for {seconds:.2f} s")
            node.zookeeper.slow(seconds)

    # a leader whose followers do not have what it has

    def _exile(self) -> None:
        """Only clients reach it. Others lead its partitions meanwhile, and it has to give way and to cut."""
        node = self._node()
        if node is None or not all(self._may_fail(one) for one in self.world.nodes):
            return
        seconds = 5 + self.rng.random() * 4
        self.last_until = max(self.last_until, self.loop.now + seconds)
        self._disconnect(node, seconds)
        self._cut_clients(node, seconds)
        for other in self.world.nodes:
            if other is not node:
                self._keep_apart(node, other, seconds)

    def _cut_clients(self, node: Node, seconds: float) -> None:
        """Some of its clients lose their connections within this time, and ask again, or others."""
        assert node.process is not None
        network = self.world.network
        for side in network.between(node.process):
            if not side.other.process.name.startswith("broker") and self.rng.random() < 0.5:
                self.loop.call_later(seconds * self.rng.random(), network.cut, side, 0.01)

    def _doom(self) -> None:
        """Its followers get nothing more, clients lose their connections to it and ask again, it dies."""
        node = self._node()
        if node is None or node.process is None or not self._may_fail(node):
            return
        seconds = self.rng.random() * self.rng.choice((0.5, 3))
        self.world.note(f"{node.name} is doomed in {seconds:.2f} s")
        network, process = self.world.network, node.process
        for side in network.between(process):
            if side.other.client_id.endswith("-replication"):
                network.stall(side, seconds)
        self._cut_clients(node, seconds)

        def die() -> None:
            if node.process is process and self._may_fail(node):
                node.kill()
                self._restart(node)

        if self.rng.random() < 0.8:
            self.loop.call_later(seconds, die)

    # the rest

    def _slow_disk(self) -> None:
        seconds = self.rng.random() * 3
        self.world.note(f"disks are slow for {seconds:.2f} s")
        self.loop.disk_is_slow = self.loop.now + seconds

    def _fail_sync(self) -> None:
        """fsync fails: the log is not used any more until the broker is started again, and what was not
        synced may be lost then, as the kernel drops such pages."""
        node = self._node()
        if node is None or not node.started or not self._may_fail(node, power=True):
            return
        node.fs.failing_syncs = self.rng.choice((1, 1, 3))
        self.world.note(f"{node.name}: the next {node.fs.failing_syncs} fsync fail")
        process = node.process

        def restart() -> None:
            if node.process is process and process is not None:
                power = self._may_fail(node, power=True)
                if not power and not self._may_fail(node):
                    self.loop.call_later(1, restart)
                    return
                node.kill(power=power)
                self._restart(node)

        seconds = self.rng.random() * 6
        self.last_until = max(self.last_until, self.loop.now + seconds)
        self.loop.call_later(seconds, restart)

    def _fill_disk(self) -> None:
        """Nothing more can be written, until there is room again. A log that could not be brought in order is
        not used any more until the broker is started again."""
        node = self._node()
        if node is None or not node.started or not self._may_fail(node):
            return
        seconds = self.rng.random() * self.rng.choice((0.1, 1, 4))
        self.world.note(f"{node.name}: the disk is full for {seconds:.2f} s")
        process = node.process
        node.fs.is_full = True

        def empty() -> None:
            node.fs.is_full = False
            if node.process is process and any(one.log.failed is not None for one in node.partitions()):
                if not self._may_fail(node):
                    self.loop.call_later(1, empty)
                    return
                node.kill()
                self._restart(node)

        self.last_until = max(self.last_until, self.loop.now + seconds)
        self.loop.call_later(seconds, empty)

    def _jump(self) -> None:
        """The wall clock of a machine is set."""
        node = self.rng.choice(self.world.nodes)
        limit = int(self.world.clock_jump_s * 500)
        if limit:
            node.clock.skew_ms = self.rng.randint(-limit, limit)
            self.world.note(f"{node.name}: the clock is off by {node.clock.skew_ms} ms")

    def _new_chain(self) -> None:
        """A client dies, or seems to, and another takes over with its transactional id."""
        chains = [one for one, _ in self.world.clients if isinstance(one, Chain) and one.process.alive]
        if chains:
            self.world.replace_chain(self.rng.choice(chains))
