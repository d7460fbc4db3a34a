"""Thousands of schedules of a cluster: brokers die, stop and come back, controllers change, partitions move.

At most one leads in an epoch; whoever is in sync has all that was acknowledged; no epoch goes back; only who
is the controller changes anything; what moves arrives or is called back; and when all are there again, every
partition is whole. `pytest tests/sim/test_cluster_elections.py --seed 17` runs one schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from penstock.controller import cluster
from penstock.controller.balance import PREFERRED, give_back, plan_elections
from penstock.controller.elected_controller import Plan
from penstock.controller.reassignment import Wanted, plan_reassignments
from penstock.metadata import layout
from tests.sim.cluster_world import LAG_MS, World

STEPS = 150


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what the controller does takes several writes, and can be interrupted between them."""
    monkeypatch.setattr(cluster, "CHUNK", 2)


class Schedule:
    """What happens next, by chance."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        brokers = rng.choice((3, 3, 4))
        self.world = World(seed, brokers, partitions=rng.choice((1, 1, 2)), factor=rng.choice((2, 3)))
        self.rng = self.world.rng
        self._loss = rng.choice((0.02, 0.1, 0.4))
        self._actions: list[tuple[Callable[[], None], int]] = [
            (self._task, 30),
            (self._message, 30),
            (self._hear, 14),
            (self._apply, 10),
            (self._look, 10),
            (self._produce, 12),
            (self._fetch, 24),
            (self._check_isr, 5),
            (self._time, 3),
            (self._kill, 2),
            (self._start, 5),
            (self._pause, 1),
            (self._resume, 4),
            (self._expire, 4),
            (self._leave, 1),
            (self._reassign, 3),
            (self._elect, 1),
            # Whole conversations, so that a schedule gets somewhere.
            (self._exchange, 25),
            (self._work, 12),
            (self._catch_up, 12),
        ]

    def run(self) -> None:
        # Each schedule has its own mood: here nobody hears anything for long, there messages get lost.
        actions = [action for action, _ in self._actions]
        weights = [weight * self.rng.choice((0.2, 1, 1, 4)) for _, weight in self._actions]
        for action in self.rng.choices(actions, weights, k=STEPS):
            action()
            for process in self.world.processes.values():
                for partition in process.partitions.values():
                    partition.check(whole_image=False)
        self.world.settle()
        self.world.check_whole()

    def _anyone(self) -> int | None:
        """A broker that runs and is not stopped."""
        nodes = [node for node, one in self.world.processes.items() if not one.is_paused]
        return self.rng.choice(nodes) if nodes else None

    def _task(self) -> None:
        tasks = [
            (process, task)
            for process in self.world.processes.values()
            if not process.is_paused
            for task in process.tasks
        ]
        if tasks:
            self.world.step(*self.rng.choice(tasks))

    def _message(self) -> None:
        network = self.world.network
        if network:
            newest = self.rng.random() < 0.5
            deliver = network.pop(-1 if newest else self.rng.randrange(len(network)))
            deliver(self.rng.random() > self._loss)

    def _hear(self) -> None:
        node = self._anyone()
        if node is not None:
            view = self.world.processes[node].view
            if view.is_open:
                view.hear(self.rng.choice((1, 2, None)))

    def _with(self, do: Callable[[int], None]) -> None:
        node = self._anyone()
        if node is not None:
            do(node)

    def _apply(self) -> None:
        self._with(lambda node: self.world.processes[node].apply())

    def _look(self) -> None:
        self._with(lambda node: self.world.processes[node].look())

    def _produce(self) -> None:
        self._with(lambda node: self.world.processes[node].produce(self.rng.choice(self.world.keys)))

    def _fetch(self) -> None:
        self._with(lambda node: self.world.processes[node].fetch(self.rng.choice(self.world.keys)))

    def _exchange(self) -> None:
        """One fetch, asked and answered."""
        waiting = list(self.world.network)
        self._fetch()
        for _ in range(2):
            new = [deliver for deliver in self.world.network if deliver not in waiting]
            if new:
                self.world.network.remove(new[0])
                new[0](True)

    def _work(self) -> None:
        """One broker does all that it is at."""

        def work(node: int) -> None:
            process = self.world.processes[node]
            process.look()
            for task in list(process.tasks):
                while not task.is_done and not process.is_dead and task.at != "lock":
                    self.world.step(process, task)

        self._with(work)

    def _catch_up(self) -> None:
        """One broker hears all there is, and does what it says."""

        def catch_up(node: int) -> None:
            process = self.world.processes[node]
            if process.view.is_open:
                process.view.hear()
                process.apply()

        self._with(catch_up)

    def _check_isr(self) -> None:
        self._with(lambda node: self.world.processes[node].check_isr(self.rng.choice(self.world.keys)))

    def _time(self) -> None:
        self.world.now += self.rng.choice((100, 2000))

    def _kill(self) -> None:
        if self.world.fragile is None:
            self._with(lambda node: self.world.kill(node, lose=self._may_lose(node)))

    def _may_lose(self, node: int) -> bool:
        """Only where others have it all: what the last in-sync replica loses is lost."""
        isrs = [self.world.partition(key).isr for key in self.world.keys]
        others = {
            one
            for one, process in self.world.processes.items()
            if one != node and process.is_registered and not process.is_paused and not process.is_leaving
        }
        alone = any(node in isr and others.isdisjoint(isr) for isr in isrs)
        return not alone and self.rng.random() < 0.3

    def _start(self) -> None:
        dead = [node for node in self.world.disks if node not in self.world.processes]
        if dead:
            self.world.start(self.rng.choice(dead))

    def _pause(self) -> None:
        if self.world.fragile is None:
            self._with(self.world.pause)

    def _resume(self) -> None:
        paused = [node for node, one in self.world.processes.items() if one.is_paused]
        if paused:
            self.world.resume(self.rng.choice(paused))

    def _expire(self) -> None:
        """Sessions of the dead end, and that of one who has been silent."""
        self.world.expire_dead()
        for process in self.world.processes.values():
            if process.is_paused and self.rng.random() < 0.5:
                self.world.tree.expire(process.view)

    def _leave(self) -> None:
        def leave(node: int) -> None:
            process = self.world.processes[node]
            if process.is_registered:
                self.world.note(f"broker {node} leaves")
                process.is_leaving = True
                process.run("leave", process.view.create(layout.leaving_path(node), b"{}", ephemeral=True))

        if self.world.fragile is None:
            self._with(leave)

    def _reassign(self) -> None:
        controller = self.world.controller()
        if controller is None:
            return
        topic, index = self.rng.choice(self.world.keys)
        target = None
        if self.rng.random() < 0.7:
            nodes = list(self.world.disks)
            target = tuple(self.rng.sample(nodes, self.rng.choice((1, 2, 3))))
        self.world.note(f"{topic}-{index} is to have {target}")
        wanted = [Wanted(topic, index, target)]
        controller.run(
            "reassign", controller.elected.carry_out(lambda image: plan_reassignments(image, wanted, ()))
        )

    def _elect(self) -> None:
        controller = self.world.controller()
        if controller is None:
            return
        keys = self.world.keys
        if self.rng.random() < 0.5:
            work = controller.elected.carry_out(lambda image: give_back(image, 10))
        else:
            work = controller.elected.carry_out(lambda image: plan_elections(image, keys, PREFERRED))
        controller.run("elect", work)


def tell(world: World, error: Exception, replay: str) -> None:
    error.add_note("\n".join(world.history[-40:]))
    error.add_note(f"replay it: {replay}")


@pytest.mark.promise(
    "reassignment",
    "On every schedule: each epoch has one leader, all in-sync replicas have every acknowledged record, "
    "no epoch decreases, and only the elected controller changes metadata",
)
@pytest.mark.promise(
    "reassignment",
    "The state of a replica is always consistent: it is checked after every unit test and between the "
    "steps of the simulators",
)
def test_every_schedule_of_a_cluster_keeps_the_promises(seeds: range) -> None:
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            tell(schedule.world, error, f"pytest tests/sim/test_cluster_elections.py --seed {seed}")
            raise


# Every interruption of a step: whoever writes is killed right before or right after each of its writes.


def run_office(world: World, plan: Plan) -> None:
    controller = world.controller()
    assert controller is not None
    controller.run("request", controller.elected.carry_out(plan), lambda outcome: None)


def move_all(world: World, nodes: tuple[int, ...]) -> None:
    wanted = [Wanted(topic, index, nodes) for topic, index in world.keys]
    run_office(world, lambda image: plan_reassignments(image, wanted, ()))


def call_back_all(world: World) -> None:
    wanted = [Wanted(topic, index, None) for topic, index in world.keys]
    run_office(world, lambda image: plan_reassignments(image, wanted, ()))


def a_broker_dies(world: World) -> None:
    world.kill(1)


def a_broker_comes_back(world: World) -> None:
    world.kill(1)
    world.settle(restart=False)
    world.start(1)


def a_broker_leaves_in_order(world: World) -> None:
    process = world.processes[2]
    process.run("leave", process.view.create(layout.leaving_path(2), b"{}", ephemeral=True))


def everything_moves(world: World) -> None:
    move_all(world, (4, 2, 3))


def everything_moves_and_is_called_back(world: World) -> None:
    move_all(world, (4,))
    controller = world.controller()
    assert controller is not None
    while controller.tasks:  # it is stored, and nobody has heard of it yet
        world.step(controller, controller.tasks[0])
        if controller.is_dead:
            return
    call_back_all(world)


def everything_moves_to_one_that_dies(world: World) -> None:
    move_all(world, (4, 1))
    world.kill(4)


def leaders_are_given_back(world: World) -> None:
    world.kill(1)
    world.settle()
    run_office(world, lambda image: give_back(image, 0))


def a_follower_falls_out_of_sync_and_catches_up(world: World) -> None:
    world.pause(3)
    for key in world.keys:
        for process in world.processes.values():
            process.produce(key)
    world.now += 2 * LAG_MS
    for process in list(world.processes.values()):
        for key in world.keys if not process.is_paused else ():
            process.check_isr(key)
    world._deliver_all()
    if world.kill_at is not None:  # nobody has died on the way: it is out of sync, and the others go on
        assert not any(
            3 in world.partition(key).isr for key in world.keys if world.partition(key).leader != 3
        )


SCENARIOS = (
    a_broker_dies,
    a_broker_comes_back,
    a_broker_leaves_in_order,
    a_follower_falls_out_of_sync_and_catches_up,
    everything_moves,
    everything_moves_and_is_called_back,
    everything_moves_to_one_that_dies,
    leaders_are_given_back,
)


@pytest.mark.promise(
    "reassignment",
    "If a controller dies at any write to the metadata store, another broker takes over and completes "
    "the change",
)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_whoever_dies_at_any_write_another_takes_over(scenario: Callable[[World], None], when: str) -> None:
    for write in range(100):
        world = World(0, brokers=4, partitions=3, factor=3)
        for key in world.keys:
            for process in world.processes.values():
                process.produce(key)
        world.settle()
        world.kill_at = (world.writes + write, when)
        try:
            scenario(world)
            world.settle(restart=False)
            for key in world.keys:
                partition = world.partition(key)
                assert partition.leader in world.processes or not set(partition.isr) & set(world.processes)
            interrupted = world.kill_at is None
            world.kill_at = None
            world.settle()
            world.check_whole()
        except Exception as error:
            tell(world, error, f"{scenario.__name__}, {when} write {write}")
            raise
        if not interrupted:
            assert write > 0, "nothing was ever written"
            return
    raise AssertionError("it writes without an end")
