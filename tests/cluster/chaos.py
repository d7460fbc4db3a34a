"""Faults at random under load, and the check at the end: `make chaos` (CHAOS_SECONDS=120 SEED=17).

A topic is written with idempotence and read, and copied to another in transactions by a group, while brokers,
ZooKeeper, links, clients and a disk fail, partitions and leaders move, and a broker comes and goes. The seed
is printed: it gives the same faults in the same order again, though not the same moments.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from penstock.cli.main import cli
from tests.cluster.copier import Copier, await_copied
from tests.cluster.harness import PATIENCE, SESSION_MS, Cluster, Node, running
from tests.cluster.history import Writer, check, read_all
from tests.cluster.proxy import Proxy

TOPIC, PARTITIONS, REPLICAS, BROKERS = "chaos", 6, 3, 4
COPY, GROUP = "chaos-copy", "chaos-copiers"


class Chaos:
    def __init__(self, cluster: Cluster, chance: random.Random, copiers: list[Copier]) -> None:
        self._cluster = cluster
        self._chance = chance
        self._copiers = copiers
        self.faults: tuple[Callable[[], None], ...] = (
            self.kill_a_leader,
            self.kill_the_controller,
            self.kill_all,
            self.restart_in_order,
            self.pause_past_the_session,
            self.cut_from_zookeeper,
            self.cut_from_followers,
            self.cut_from_clients,
            self.shake_links,
            self.restart_zookeeper,
            self.lose_a_disk,
            self.move_partitions,
            self.call_moves_back,
            self.elect_preferred_leaders,
            self.take_a_broker_in_and_out,
            self.bounce_a_copier,
        )

    def _some_time(self, longest: float = 3.0) -> None:
        time.sleep(self._chance.uniform(0.1, longest))

    def _node(self) -> Node:
        return self._chance.choice(list(self._cluster.nodes.values()))

    def _bounce(self, node: Node) -> None:
        node.kill()
        self._some_time(SESSION_MS / 500)  # sometimes back before its session is over
        node.start()

    def kill_a_leader(self) -> None:
        self._bounce(self._cluster.leader(TOPIC, self._chance.randrange(PARTITIONS)))

    def kill_the_controller(self) -> None:
        self._bounce(self._cluster.controller())

    def kill_all(self) -> None:
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            node.kill()
        self._chance.shuffle(nodes)
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_until_ready()

    def restart_in_order(self) -> None:
        for node in self._cluster.nodes.values():
            node.restart()

    def pause_past_the_session(self) -> None:
        node = self._node()
        node.pause()
        time.sleep(SESSION_MS / 1000 * self._chance.uniform(0.5, 2.5))
        node.resume()

    def cut_from_zookeeper(self) -> None:
        self._cut(self._node().zookeeper, SESSION_MS / 400)

    def cut_from_followers(self) -> None:
        self._cut(self._node().peers, 6.0)

    def cut_from_clients(self) -> None:
        self._cut(self._node().clients, 3.0)

    def _cut(self, link: Proxy, longest: float) -> None:
        link.cut()
        self._some_time(longest)
        link.heal()

    def shake_links(self) -> None:
        links = [
            link
            for node in self._cluster.nodes.values()
            for link in (node.clients, node.peers, node.zookeeper)
        ]
        for link in links:
            link.slow(self._chance.uniform(0, 0.02))
        for _ in range(10):
            self._chance.choice(links).shake()
            self._some_time(0.3)
        for link in links:
            link.heal()

    def restart_zookeeper(self) -> None:
        server = self._cluster.zookeepers[0]
        server.kill()
        self._some_time(SESSION_MS / 500)
        server.start()

    def lose_a_disk(self) -> None:
        """All that one broker has; the others are to have it all, or it would be lost indeed."""
        self._cluster.mend()
        node = self._node()
        node.kill()
        shutil.rmtree(node.directory)
        self._some_time(SESSION_MS / 500)
        node.start()

    def move_partitions(self) -> None:
        nodes = list(self._cluster.nodes)
        moves = []
        for index in self._chance.sample(range(PARTITIONS), 3):
            brokers = ",".join(map(str, self._chance.sample(nodes, REPLICAS)))
            moves.append(f"--move={TOPIC}:{index}={brokers}")
        self._penstock("reassign", *moves, "--no-wait")
        if self._chance.random() < 0.7:
            self._bounce(self._node())

    def call_moves_back(self) -> None:
        self.move_partitions()
        self._penstock("reassign", "--cancel")

    def elect_preferred_leaders(self) -> None:
        self._penstock("elect")

    def take_a_broker_in_and_out(self) -> None:
        number = max(self._cluster.nodes) + 1
        node = self._cluster.add(number)
        self._cluster.mend()
        self._penstock("rebalance", "--yes", must=True)
        self._some_time()
        self._penstock("decommission", str(number), "--yes", must=True)
        node.stop()
        del self._cluster.nodes[number]

    def bounce_a_copier(self) -> None:
        self._chance.choice(self._copiers).bounce()

    def _penstock(self, *words: str, must: bool = False) -> None:
        """`penstock cluster ...`. A cluster that has not recovered may refuse it."""
        options = ["--bootstrap", self._cluster.bootstrap, "--timeout", str(PATIENCE)]
        result = CliRunner().invoke(cli, ["cluster", *words, *options])
        told = result.exception is None or isinstance(result.exception, SystemExit)
        assert told, (words, result.output, result.exception)
        assert not must or result.exit_code == 0, (words, result.output)


def run(seconds: float, seed: int, directory: Path, say: Callable[[str], None] = print) -> None:
    chance = random.Random(seed)
    words = (TOPIC, COPY, GROUP, 500)
    with running(directory, brokers=BROKERS) as cluster:
        for topic in (TOPIC, COPY):
            cluster.create_topic(topic, PARTITIONS, REPLICAS, min_insync_replicas="2")
        with (
            Copier(cluster, "copier-0", *words) as first,
            Copier(cluster, "copier-1", *words) as second,
            Writer(cluster, TOPIC, PARTITIONS) as writer,
        ):
            copiers = [first, second]
            chaos = Chaos(cluster, chance, copiers)
            end = time.monotonic() + seconds
            count = 0
            while time.monotonic() < end:
                fault = chance.choice(chaos.faults)
                count += 1
                say(f"{count:3d} {fault.__name__.replace('_', ' ')}")
                fault()
                for copier in copiers:
                    copier.keep_running()
                if chance.random() < 0.5:  # else the next one meets a cluster that has not recovered
                    cluster.mend()
                    writer.wait_for_progress()
            cluster.mend()
            writer.wait_for_progress()
            history = writer.stop()
            assert not history.failed, history.failed[:3]
            log = read_all(cluster, TOPIC)
            check(history, log)
            records = sum(map(len, log.values()))
            say(f"{count} faults; {records} records are there, the copy is waited for")
            await_copied(cluster, copiers, TOPIC, PARTITIONS, GROUP, records, 2 * PATIENCE)
        copy = read_all(cluster, COPY)
        for index, written in log.items():
            wanted, found = [value for _, value in written], [value for _, value in copy[index]]
            assert found == wanted, (
                f"partition {index}: the copy differs, {len(found)} of {len(wanted)} records"
            )
    say(
        f"{count} faults, {len(history.acknowledged)} records acknowledged, {len(history.read)} read on the "
        f"way, {records} copied: none lost, none twice, in order"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as directory:
        try:
            run(options.seconds, seed, Path(directory), lambda text: print(text, flush=True))
        except AssertionError as error:
            print(f"FAILED with seed {seed}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
