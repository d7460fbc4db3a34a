"""`penstock mirror` as a user runs it: both ways between two clusters."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.connect.connectors.mirror.formats import Heartbeat
from tests.connect.mirror.conftest import Pair, connect, partition, until, until_equal
from tests.connect.mirror.test_source import write

pytestmark = pytest.mark.timeout(400)


@pytest.mark.long
def test_both_ways_without_a_circle(clusters: Pair, tmp_path: Path) -> None:
    for broker in (clusters.source, clusters.target):
        broker.create_topic("common", partitions=1)
        write(broker, "common", 100)
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = here, there\nhere.bootstrap.servers = {clusters.source.bootstrap}\n"
        f"there.bootstrap.servers = {clusters.target.bootstrap}\n"
        "here->there.enabled = true\nthere->here.enabled = true\ntopics = .*common\n"
        "refresh.topics.interval.seconds = 1\nrefresh.groups.interval.seconds = 1\n"
        "emit.checkpoints.interval.seconds = 1\n"
    )
    with connect(clusters.source.bootstrap) as source:
        source.commit_offsets("readers", {("common", 0): 40})
    words = ["mirror", "--config", str(file), "--ready-file", str(ready)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: ready.exists() or process.poll() is not None, "it is ready", log.read_text)
        assert process.poll() is None, log.read_text()
        assert len(json.loads(ready.read_text())["flows"]) == 2
        until_equal(clusters, "common", "here.common", 1)
        until_equal(Pair(clusters.target, clusters.source), "common", "there.common", 1)
        with connect(clusters.source.bootstrap) as source, connect(clusters.target.bootstrap) as target:
            until(lambda: "here.heartbeats" in target.topics(), "heartbeats arrive", log.read_text)
            until(lambda: partition(target, "here.heartbeats", 0)[0], "heartbeats arrive", log.read_text)
            beat = partition(target, "here.heartbeats", 0)[0][-1]
            # Written in `here` by the way back, and carried to `there`.
            found = Heartbeat.of(beat.key or b"", beat.value or b"")
            assert (found.source, found.target) == ("there", "here")
            # More rounds of looking for topics have gone by: nothing goes round in a circle.
            for cluster in (source, target):
                assert not [name for name in cluster.topics() if name.count("common") and name.count(".") > 1]
        shown = ["mirror", "offsets", "readers", "-b", clusters.target.bootstrap, "--source-alias", "here"]
        until(lambda: CliRunner().invoke(cli, shown).exit_code == 0, "there is a checkpoint", log.read_text)
        (row,) = json.loads(CliRunner().invoke(cli, [*shown, "--json"]).stdout)
        assert (row["topic"], row["partition"], row["source-offset"]) == ("here.common", 0, 40)
        assert 0 <= row["offset"] <= 40
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()
        assert not ready.exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give --source and --target"),
        (["--source", "a:1", "--target", "b:1", "--source-alias", "target"], "are both 'target'"),
        (["--source", "a:1", "--target", "b:1", "--keep-names", "--both-ways"], "one direction only"),
        (["--source", "a:1", "--target", "b:1", "--set", "x->y.topics=a"], "x is not one of the clusters"),
    ],
)
def test_wrong_usage_says_what_to_do(words: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["mirror", *words])
    assert result.exit_code == 2 and says in " ".join(result.output.split())
