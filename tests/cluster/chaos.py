"""Faults at random under load, and the check at the end: `make chaos` (CHAOS_SECONDS=120 SEED=17).

A topic is written with idempotence and read; copied to a second in transactions by a group, and from there
to a third, dealt to other partitions, with an abort right after each commit. Another is trimmed by
DeleteRecords, one is compacted, and the ends of logs are looked up. Meanwhile brokers, ZooKeeper, links,
clients, disks and clocks fail or are slow, partitions and leaders move, and a broker comes and goes. The seed
is printed: it gives the same faults in the same order again, though not the same moments.

CHAOS_MINUTES=60 runs one such minute after the other, each with a new cluster and the next seed, and stops at
the first that fails. What a failed run leaves (data, logs of brokers and clients) stays in build/chaos.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import KafkaException

from penstock.cli.main import cli
from penstock.log.tools.verify import verify
from tests.cluster import markers
from tests.cluster.copier import Copier, await_copied, await_no_open_transactions
from tests.cluster.harness import PATIENCE, SESSION_MS, Cluster, Node, running
from tests.cluster.history import Writer, check, read_all
from tests.cluster.loads import Ends, KeyedWriter, Trimmer, read_from_the_beginning
from tests.cluster.proxy import Proxy
from tests.tools import kafka_jars, transaction_load

TOPIC, PARTITIONS, REPLICAS, BROKERS = "chaos", 6, 3, 4
COPY, GROUP = "chaos-copy", "chaos-copiers"
DEALT, DEALERS, DEALT_PARTITIONS = "chaos-dealt", "chaos-dealers", 4
TRIMMED, COMPACTED, FEW = "chaos-trimmed", "chaos-compacted", 2
TRANSACTIONAL = (COPY, DEALT, "__consumer_offsets")
Records = dict[int, list[tuple[int, bytes]]]
EVIDENCE = Path("build/chaos")
_SETTINGS = {"log.cleaner.backoff.ms": "2000", "log.retention.check.interval.ms": "2000"}
_COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": str(64 << 10),
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "1000",
}


class Chaos:
    def __init__(self, cluster: Cluster, chance: random.Random, copiers: list[Copier]) -> None:
        self._cluster = cluster
        self.chance = chance
        self._copiers = copiers
        self.faults: tuple[Callable[[], None], ...] = (
            self.kill_a_leader,
            self.kill_the_controller,
            self.kill_all,
            self.restart_in_order,
            self.pause_past_the_session,
            self.stutter,
            self.pause_several,
            self.jump_a_clock,
            self.jump_all_clocks,
            self.slow_a_disk,
            self.fill_a_disk,
            self.overload_the_machine,
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
        time.sleep(self.chance.uniform(0.1, longest))

    def _node(self) -> Node:
        return self.chance.choice(list(self._cluster.nodes.values()))

    def _bounce(self, node: Node) -> None:
        node.kill()
        self._some_time(SESSION_MS / 500)  # sometimes back before its session is over
        node.start()

    def kill_a_leader(self) -> None:
        self._bounce(self._cluster.leader(TOPIC, self.chance.randrange(PARTITIONS)))

    def kill_the_controller(self) -> None:
        self._bounce(self._cluster.controller())

    def kill_all(self) -> None:
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            node.kill()
        self.chance.shuffle(nodes)
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
        time.sleep(SESSION_MS / 1000 * self.chance.uniform(0.5, 2.5))
        node.resume()

    def stutter(self) -> None:
        """Seconds late, and never away: it answers a little, then not, again and again."""
        node = self._node()
        for _ in range(self.chance.randrange(3, 10)):
            node.pause()
            time.sleep(self.chance.uniform(0.1, SESSION_MS / 2000))
            node.resume()
            time.sleep(self.chance.uniform(0.02, 0.2))

    def pause_several(self) -> None:
        nodes = self.chance.sample(list(self._cluster.nodes.values()), 2)
        for node in nodes:
            node.pause()
        self._some_time(SESSION_MS / 600)
        for node in nodes:
            node.resume()
            self._some_time(0.5)

    def jump_a_clock(self) -> None:
        self._jump([self._node()])

    def jump_all_clocks(self) -> None:
        self._jump(list(self._cluster.nodes.values()))

    def _jump(self, nodes: list[Node]) -> None:
        """Forwards or backwards by up to ten minutes, and after a while back again."""
        ms = int(10 ** self.chance.uniform(2, 5.8)) * self.chance.choice((1, -1))
        for node in nodes:
            node.strain(clock_ms=ms)
        self._some_time(4)
        for node in nodes:
            node.strain()

    def slow_a_disk(self) -> None:
        node = self._node()
        node.strain(fsync_s=self.chance.uniform(0.05, 2), write_s=self.chance.choice((0, 0.005, 0.05)))
        self._some_time(5)
        node.strain()

    def fill_a_disk(self) -> None:
        node = self._node()
        node.strain(full=True)
        self._some_time(5)
        if self.chance.random() < 0.3:
            node.kill()  # with what could not be written; a broker does not start on a full disk
        node.strain()
        if not node.is_running:
            node.start()

    def overload_the_machine(self) -> None:
        """More work than processors for some seconds: everything is late, also the clients."""
        spin = [sys.executable, "-c", "while True: pass"]
        spinners = [subprocess.Popen(spin) for _ in range(4 * (os.cpu_count() or 1))]
        self._some_time(4)
        for one in spinners:
            one.kill()
            one.wait()

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
            link.slow(self.chance.uniform(0, 0.02))
        for _ in range(10):
            self.chance.choice(links).shake()
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
        for index in self.chance.sample(range(PARTITIONS), 3):
            brokers = ",".join(map(str, self.chance.sample(nodes, REPLICAS)))
            moves.append(f"--move={TOPIC}:{index}={brokers}")
        self._penstock("reassign", *moves, "--no-wait")
        if self.chance.random() < 0.7:
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
        self.chance.choice(self._copiers).bounce()

    def _penstock(self, *words: str, must: bool = False) -> None:
        """`penstock cluster ...`. A cluster that has not recovered may refuse it."""
        options = ["--bootstrap", self._cluster.bootstrap, "--timeout", str(PATIENCE)]
        result = CliRunner().invoke(cli, ["cluster", *words, *options])
        told = result.exception is None or isinstance(result.exception, SystemExit)
        assert told, (words, result.output, result.exception)
        assert not must or result.exit_code == 0, (words, result.output)


def run(seconds: float, seed: int, directory: Path, say: Callable[[str], None] = print) -> None:
    chance = random.Random(seed)
    with (
        running(directory, brokers=BROKERS, settings=_SETTINGS, strained=True) as cluster,
        ExitStack() as stack,
    ):
        for topic, partitions in ((TOPIC, PARTITIONS), (COPY, PARTITIONS), (DEALT, DEALT_PARTITIONS)):
            flush = {"flush_messages": "1"} if chance.random() < 0.5 else {}
            cluster.create_topic(topic, partitions, REPLICAS, min_insync_replicas="2", **flush)
        cluster.create_topic(TRIMMED, FEW, REPLICAS, min_insync_replicas="2", segment_bytes=str(64 << 10))
        cluster.create_topic(COMPACTED, FEW, REPLICAS, min_insync_replicas="2", **_COMPACT)
        copiers = _copiers(cluster, say)
        for copier in copiers:
            stack.enter_context(copier)
        writer = stack.enter_context(Writer(cluster, TOPIC, PARTITIONS, pause=0.04, debug=True))
        trimmed = stack.enter_context(
            Writer(cluster, TRIMMED, FEW, name="t", pause=0.1, debug=True, **{"batch.size": 8192})
        )
        trimmer = Trimmer(cluster, TRIMMED, FEW, trimmed.history)
        keyed = KeyedWriter(cluster, COMPACTED, FEW)
        ends = [
            Ends(cluster, TOPIC, PARTITIONS, "read_uncommitted"),
            Ends(cluster, COPY, PARTITIONS, "read_committed"),
            Ends(cluster, TRIMMED, FEW, "read_uncommitted", trimmer),
        ]
        for load in (trimmer, keyed, *ends):
            stack.enter_context(load)
        count = _strike(Chaos(cluster, chance, copiers), cluster, writer, copiers, seconds, say)
        cluster.mend()
        writer.wait_for_progress()
        for load in (trimmer, keyed, *ends):
            load.stop()
        history = writer.stop()
        assert not history.failed, history.failed[:3]
        log = read_all(cluster, TOPIC)
        check(history, log)
        for one in ends:
            one.check()
        assert not trimmed.stop().failed, trimmed.history.failed[:3]
        assert not trimmed.history.misread, trimmed.history.misread[:5]
        trimmer.check(read_from_the_beginning(cluster, TRIMMED, FEW))
        keyed.check(read_from_the_beginning(cluster, COMPACTED, FEW))
        records = sum(map(len, log.values()))
        say(f"{count} faults; {records} records are there, the copies are waited for")
        await_copied(cluster, copiers, TOPIC, PARTITIONS, GROUP, records, 2 * PATIENCE)
        copy = read_all(cluster, COPY)
        wanted = sum(written[-1][0] + 1 for written in copy.values() if written)  # it has markers, too
        await_copied(cluster, copiers, COPY, PARTITIONS, DEALERS, wanted, 2 * PATIENCE)
        for copier in copiers:
            copier.kill()
        # A client that is killed leaves its transaction open, and the coordinator aborts it in time.
        for topic, partitions in ((COPY, PARTITIONS), (DEALT, DEALT_PARTITIONS)):
            await_no_open_transactions(cluster, topic, partitions)
        _check_copies(cluster, log, read_all(cluster, COPY))
        for node in cluster.nodes.values():
            assert node.stop() == 0
        _check_files(cluster)
    say(
        f"{count} faults, {len(history.acknowledged)} records acknowledged, {len(history.read)} read on the "
        f"way, {records} copied twice, ends looked up {sum(one.answers for one in ends)} times: none lost, "
        "none twice, in order"
    )


def _copiers(cluster: Cluster, say: Callable[[str], None]) -> list[Copier]:
    dealer = (COPY, DEALT, DEALERS, 100)
    copiers = [Copier(cluster, f"copier-{number}", TOPIC, COPY, GROUP, 500) for number in range(2)]
    copiers.append(Copier(cluster, "dealer-0", *dealer, deal=DEALT_PARTITIONS))
    if kafka_jars.are_here():
        java = transaction_load.java(kafka_jars.LIBRARIES, "TransactionCopier")
        return [*copiers, Copier(cluster, "dealer-java", *dealer, deal=DEALT_PARTITIONS, program=java)]
    say("no copier in Java: Kafka's jars have not been fetched (`pytest tests/tools` does so where Maven is)")
    return [*copiers, Copier(cluster, "dealer-1", *dealer, deal=DEALT_PARTITIONS)]


def _strike(
    chaos: Chaos,
    cluster: Cluster,
    writer: Writer,
    copiers: list[Copier],
    seconds: float,
    say: Callable[[str], None],
) -> int:
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        fault = chaos.chance.choice(chaos.faults)
        count += 1
        say(f"{count:3d} {fault.__name__.replace('_', ' ')}")
        fault()
        for copier in copiers:
            copier.keep_running()
        if chaos.chance.random() < 0.5:  # else the next one meets a cluster that has not recovered
            cluster.mend()
            writer.wait_for_progress()
    return count


def _check_copies(cluster: Cluster, log: Records, copy: Records) -> None:
    for index, written in log.items():
        wanted, found = [value for _, value in written], [value for _, value in copy[index]]
        assert found == wanted, f"partition {index}: the copy differs, {len(found)} of {len(wanted)} records"
    once = Counter(value for written in log.values() for _, value in written)
    dealt = read_all(cluster, DEALT)
    found = Counter(value for written in dealt.values() for _, value in written)
    lost, more = once - found, found - once
    assert not lost, f"{lost.total()} records were not dealt, {list(lost)[:5]}"
    assert not more, f"{more.total()} records were dealt twice or never committed, {list(more)[:5]}"
    for index, written in dealt.items():
        astray = [value for _, value in written if int(value.rpartition(b":")[2]) % DEALT_PARTITIONS != index]
        assert not astray, f"partition {index} has records of others: {astray[:5]}"


def _check_files(cluster: Cluster) -> None:
    """Of brokers that have stopped: every file is sound, and no transaction is open or ended by a marker that
    was not meant for it."""
    decided = markers.decisions(node.directory for node in cluster.nodes.values())
    for node in cluster.nodes.values():
        # A warning is of a marker that may be in order. Whether it is, the coordinators' own records say.
        problems = [one for one in verify(str(node.directory)).all_problems if one.severity == "error"]
        assert not problems, f"broker {node.id}: {len(problems)} problems, {problems[:5]}"
        hanging = markers.scan(node.directory, TRANSACTIONAL, version_2=False).hanging
        assert not hanging, f"broker {node.id}: {hanging[:5]}"
        undecided = markers.undecided(node.directory, TRANSACTIONAL, decided)
        assert not undecided, f"broker {node.id}: {len(undecided)} markers, {undecided[:5]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--minutes", type=int, default=None, help="that many runs of a minute, a seed for each"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    if options.minutes is None:
        return _one(options.seconds, seed)
    for number in range(options.minutes):
        print(f"minute {number + 1} of {options.minutes}", flush=True)
        if _one(60, seed + number):
            print(f"{number} minutes were clean", file=sys.stderr)
            return 1
    print(f"{options.minutes} minutes were clean, seeds {seed} to {seed + options.minutes - 1}")
    return 0


def _one(seconds: float, seed: int) -> int:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} {text}", flush=True)

    directory = EVIDENCE / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    say(f"seed {seed}")
    try:
        run(seconds, seed, directory.absolute(), say)
    except (AssertionError, KafkaException, OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"FAILED with seed {seed}: {error}", file=sys.stderr)
        (directory / "failure.txt").write_text(traceback.format_exc())
        print(f"{directory} has the brokers' data and logs, and the trace in failure.txt", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
