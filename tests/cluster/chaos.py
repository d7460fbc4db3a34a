"""Faults at random under load, and the check at the end: `make chaos` (CHAOS_SECONDS=120 SEED=17).

The seed is printed: it gives the same faults in the same order again, though not the same moments.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.harness import SESSION_MS, Cluster, Node, running
from tests.cluster.history import Writer, check, read_all
from tests.cluster.proxy import Proxy

TOPIC, PARTITIONS = "chaos", 6


class Chaos:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
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


def run(seconds: float, seed: int, directory: Path, say: Callable[[str], None] = print) -> None:
    chance = random.Random(seed)
    with running(directory) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        chaos = Chaos(cluster, chance)
        end = time.monotonic() + seconds
        count = 0
        with Writer(cluster, TOPIC, PARTITIONS) as writer:
            while time.monotonic() < end:
                fault = chance.choice(chaos.faults)
                count += 1
                say(f"{count:3d} {fault.__name__.replace('_', ' ')}")
                fault()
                if chance.random() < 0.5:  # else the next one meets a cluster that has not recovered
                    cluster.mend()
                    writer.wait_for_progress()
            cluster.mend()
            writer.wait_for_progress()
            history = writer.stop()
        assert not history.failed, history.failed[:3]
        check(history, read_all(cluster, TOPIC))
    say(f"{count} faults, {len(history.acknowledged)} records acknowledged: none lost, none twice, in order")


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
