"""The client commands of the command line against a real broker that `penstock up` started."""

import json
import os
import random
import signal
import subprocess
import sys
import uuid

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    """The address of a broker started with `penstock up`, which must stop cleanly afterwards."""
    directory = tmp_path_factory.mktemp("up")
    command = [
        sys.executable,
        "-m",
        "penstock",
        "up",
        "--no-registry",
        "--no-connect",
        "--json",
        "--port",
        "0",
        "--data",
        str(directory / "data"),
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = process.stdout.readline()
        assert line, (directory / "log").read_text()
        yield json.loads(line)["bootstrap"]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0, (directory / "log").read_text()
        process.stdout.close()


@pytest.fixture
def run(bootstrap):
    """Run a command line; its exit code must be `expect`, and a failure must be one line."""

    def run(*arguments, stdin=b"", expect=0):
        result = CliRunner().invoke(cli, arguments, input=stdin, env={"PENSTOCK_BOOTSTRAP": bootstrap})
        assert result.exit_code == expect, (result.output, result.exception)
        if expect == 1:
            assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
            assert "Traceback" not in result.stderr
        return result

    return run


@pytest.fixture
def run_json(run):
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture
def topic():
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def spawn(bootstrap):
    """Start a command line as a process of its own."""
    processes = []

    def spawn(*arguments, environment=None, **options):
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            env=os.environ | {"PENSTOCK_BOOTSTRAP": bootstrap} | (environment or {}),
            **({"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options),
        )
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


# Topics


@pytest.mark.promise(
    "commands", "Topics and their settings can be created, listed, described, altered and deleted"
)
def test_a_topic_is_created_listed_described_altered_and_deleted(run, run_json, topic):
    run("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=1234")
    assert {"name": topic, "partitions": 3, "replication_factor": 1} in run_json("topics", "list")
    assert topic in run("topics", "list").stdout

    (described,) = run_json("topics", "describe", topic)
    assert described["configs"] == {"retention.ms": "1234"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all(p["leader"] == 1 and p["isr"] == [1] and p["latest"] == 0 for p in described["partitions"])
    assert (
        f"{topic}: id {described['id']}, settings: retention.ms=1234"
        in run("topics", "describe", topic).stdout
    )

    assert run_json("topics", "alter", topic, "--partitions", "5") == [{"name": topic, "result": "altered"}]
    assert len(run_json("topics", "describe", topic)[0]["partitions"]) == 5

    assert run("topics", "delete", topic).stdout == f"{topic}: deleted\n"
    assert topic not in run("topics", "list").stdout


def test_several_topics_are_created_and_one_failure_does_not_stop_the_others(run, run_json, topic):
    other = topic + "-b"
    run("topics", "create", topic)
    result = run("topics", "create", topic, other, "--json", expect=1)
    assert [(r["name"], r["result"]) for r in json.loads(result.stdout)] == [
        (topic, "failed"),
        (other, "created"),
    ]
    assert f"cannot create '{topic}'" in result.stderr and "TOPIC_ALREADY_EXISTS" in result.stderr
    assert run_json("topics", "create", topic, "--if-not-exists") == [{"name": topic, "result": "exists"}]
    run("topics", "delete", topic, other)


def test_deleting_what_is_not_there_fails_unless_told_otherwise(run, topic):
    assert f"no topic '{topic}'" in run("topics", "delete", topic, expect=1).stderr
    assert run("topics", "delete", topic, "--if-exists").stdout == f"{topic}: absent\n"


@pytest.mark.promise("commands", "Failures print one clear line that names the topic, setting or address")
def test_a_wrong_name_is_answered_with_the_nearest_topic(run, topic):
    run("topics", "create", topic)
    wrong = topic[:-1]
    for command in (
        ("consume", wrong),
        ("offsets", wrong),
        ("topics", "describe", wrong),
        ("topics", "alter", wrong, "--partitions", "3"),
        ("topics", "delete", wrong),
        ("configs", "describe", "topic", wrong),
        ("configs", "set", "topic", wrong, "retention.ms=1"),
    ):
        message = run(*command, expect=1).stderr
        assert message == f"Error: no topic '{wrong}' in this cluster. Did you mean '{topic}'?\n", command


def test_what_the_broker_refuses_is_said_in_its_words(run, topic):
    assert "INVALID_TOPIC" in run("topics", "create", "a/b", expect=1).stderr.replace(
        "TOPIC_EXCEPTION", "INVALID_TOPIC"
    )
    assert "retention.mss" in run("topics", "create", topic, "-c", "retention.mss=1", expect=1).stderr
    run("topics", "create", topic, "--partitions", "2")
    assert "INVALID_PARTITIONS" in run("topics", "alter", topic, "--partitions", "1", expect=1).stderr
    assert "INVALID_REPLICATION_FACTOR" in run("topics", "create", topic + "x", "-r", "3", expect=1).stderr


def test_validation_changes_nothing(run, topic):
    assert run("topics", "create", topic, "--validate-only").stdout == f"{topic}: valid\n"
    assert topic not in run("topics", "list").stdout


# Configs


@pytest.mark.promise(
    "commands", "Topics and their settings can be created, listed, described, altered and deleted"
)
def test_a_topics_settings_are_shown_with_their_sources_set_and_unset(run, run_json, topic):
    run("topics", "create", topic)
    assert run_json("configs", "describe", "topic", topic) == []
    assert "only default settings" in run("configs", "describe", "topic", topic).stderr
    run("configs", "set", "topic", topic, "cleanup.policy=compact", "retention.ms=5")
    found = run_json("configs", "describe", "topic", topic)
    assert [(s["name"], s["value"], s["source"]) for s in found] == [
        ("cleanup.policy", "compact", "topic"),
        ("retention.ms", "5", "topic"),
    ]
    run("configs", "unset", "topic", topic, "retention.ms")
    everything = {s["name"]: s for s in run_json("configs", "describe", "topic", topic, "--all")}
    assert (everything["retention.ms"]["value"], everything["retention.ms"]["source"]) == (
        "604800000",
        "default",
    )
    assert everything["cleanup.policy"]["source"] == "topic"


def test_a_brokers_settings_are_shown_set_and_unset(run, run_json):
    static = {s["name"]: s for s in run_json("configs", "describe", "broker", "1")}
    assert static["log.dirs"]["source"] == "broker file"
    run("configs", "set", "broker", "1", "log.cleaner.backoff.ms=1000")
    changed = {s["name"]: s for s in run_json("configs", "describe", "broker", "1")}
    assert (changed["log.cleaner.backoff.ms"]["value"], changed["log.cleaner.backoff.ms"]["source"]) == (
        "1000",
        "broker",
    )
    run("configs", "unset", "broker", "1", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in {s["name"] for s in run_json("configs", "describe", "broker", "1")}


def test_a_broker_that_is_not_there_is_named(run):
    assert (
        "no broker 9 in this cluster: it has 1." in run("configs", "describe", "broker", "9", expect=1).stderr
    )


def test_a_wrong_setting_is_refused_by_name_and_nothing_changes(run, run_json, topic):
    run("topics", "create", topic)
    assert "retention.ms" in run("configs", "set", "topic", topic, "retention.ms=soon", expect=1).stderr
    assert run_json("configs", "describe", "topic", topic) == []


# Records


def test_lines_become_records_and_records_lines(run, run_json, topic):
    result = run("produce", topic, stdin=b"one\ntwo\n\nlast without end")
    assert result.stderr == f"4 records (22 B) written to '{topic}'.\n" and result.stdout == ""
    assert run("consume", topic).stdout_bytes == b"one\ntwo\n\nlast without end\n"


@pytest.mark.promise(
    "commands",
    "`produce` and `consume` keep records byte for byte: keys, headers, tombstones, partitions, formats",
)
def test_keys_headers_tombstones_and_partitions_arrive_as_written(run, run_json, topic):
    run("topics", "create", topic, "--partitions", "2")
    options = ("--key-separator", "\\t", "--null-value", "NULL", "--header", "h=x", "--partition", "1")
    run("produce", topic, *options, stdin=b"k\tv\nk\tNULL\n")
    records = [json.loads(line) for line in run("consume", topic, "--json").stdout.splitlines()]
    assert [(r["partition"], r["offset"], r["key"], r["value"], r["headers"]) for r in records] == [
        (1, 0, "k", "v", [{"key": "h", "value": "x"}]),
        (1, 1, "k", None, [{"key": "h", "value": "x"}]),
    ]
    assert run("consume", topic, "--keys", "--headers", "--null", "-").stdout == "h=x\tk\tv\nh=x\tk\t-\n"


@pytest.mark.promise(
    "commands",
    "`produce` and `consume` keep records byte for byte: keys, headers, tombstones, partitions, formats",
)
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_codec_and_acks_brings_the_bytes_back(run, run_json, topic, compression, acks):
    run("topics", "create", topic)
    source = random.Random(3)
    lines = [source.randbytes(40).hex().encode() for _ in range(300)]
    options = ("--format", "hex", "--compression", compression, "--acks", acks)
    told = run_json("produce", topic, *options, stdin=b"\n".join(lines) + b"\n")
    assert (told["delivered"], told["failed"]) == (300, 0)
    result = run("consume", topic, "--format", "hex", "--from", "0", "--follow", "--max", "300")
    assert result.stdout_bytes.splitlines() == lines


@pytest.mark.promise(
    "commands",
    "`produce` and `consume` keep records byte for byte: keys, headers, tombstones, partitions, formats",
)
def test_json_lines_move_a_topic_with_nothing_lost(run, topic, tmp_path):
    run("topics", "create", topic, topic + "-copy", "--partitions", "3")
    lines = [
        {"key": f"k{n}", "value": f"v{n}", "headers": [{"key": "n", "value": str(n)}], "timestamp": 1000 + n}
        for n in range(200)
    ] + [{"key_base64": "/w==", "value": None, "headers": [{"key": "e", "value": None}], "timestamp": 7}]
    run("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, lines)).encode())
    path = tmp_path / "dump.jsonl"
    assert f"201 records written to {path}" in run("consume", topic, "--json", "--output", str(path)).stderr
    run("produce", topic + "-copy", "--format", "json", "--file", str(path))

    def content(name):
        records = map(json.loads, run("consume", name, "--json").stdout.splitlines())
        return sorted(json.dumps({**record, "topic": ""}, sort_keys=True) for record in records)

    assert content(topic) == content(topic + "-copy")


def test_a_big_file_arrives_in_order(run, topic, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(60_000)))
    run("produce", topic, "--file", str(path), "--compression", "lz4")
    assert run("consume", topic).stdout_bytes == path.read_bytes()


def test_a_bad_line_stops_there_and_is_named(run, topic):
    result = run("produce", topic, "--format", "hex", stdin=b"00\nxyz\n01\n", expect=1)
    assert "stdin, line 2: not hexadecimal: 'xyz'. Nothing after it was sent." in result.stderr
    assert run("consume", topic, "--format", "hex").stdout == "00\n"


def test_a_record_that_the_broker_refuses_is_counted_and_the_others_are_written(run, topic):
    run("topics", "create", topic, "--config", "max.message.bytes=1000")
    big = b"x" * 5000
    # One batch each, or the small records would share the fate of the large one.
    options = ("-X", "batch.num.messages=1")
    result = run("produce", topic, *options, stdin=b"a\n" + big + b"\nb\n", expect=1)
    assert f"1 of 3 records not written to '{topic}'; the first error: " in result.stderr
    assert "MSG_SIZE_TOO_LARGE" in result.stderr
    assert run("consume", topic).stdout == "a\nb\n"


def test_a_partition_that_is_not_there_is_named(run, topic):
    run("topics", "create", topic, "--partitions", "2")
    for command in ("produce", "consume", "offsets"):
        message = f"topic '{topic}' has no partition 7: it has 0 to 1."
        assert message in run(command, topic, "--partition", "7", expect=1).stderr


@pytest.fixture
def timed(run, topic):
    """Ten records, one a second from 1700000000 s on."""
    run("topics", "create", topic)
    lines = [json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 1000}) for n in range(10)]
    run("produce", topic, "--format", "json", stdin="\n".join(lines).encode())
    return topic


@pytest.mark.promise(
    "commands",
    "`consume` starts at an offset, at a time or at the last N records, and can follow new records",
)
@pytest.mark.parametrize(
    ("where", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("4", 4),
        ("10", 10),
        ("-3", 7),
        ("@1700000005000", 5),
        ("@1700000005001", 6),
        ("@2023-11-14T22:13:28Z", 8),
        ("@2100-01-01T00:00:00Z", 10),
    ],
)
def test_reading_starts_where_it_is_told(run, timed, where, first):
    expected = "".join(f"{n}\n" for n in range(first, 10))
    assert run("consume", timed, "--from", where).stdout == expected


def test_max_stops_after_that_many(run, timed):
    assert run("consume", timed, "--max", "4", "--format", "%o=%v").stdout == "0=0\n1=1\n2=2\n3=3\n"


def test_an_offset_out_of_range_is_refused_with_the_range(run, timed):
    assert (
        f"offset 11 is out of range ({timed}-0: 0 to 10)"
        in run("consume", timed, "--from", "11", expect=1).stderr
    )


def test_offsets_by_partition_and_by_time(run, run_json, timed):
    assert run_json("offsets", timed)["partitions"] == [{"partition": 0, "earliest": 0, "latest": 10}]
    (at,) = run_json("offsets", timed, "--at", "1700000003500")["partitions"]
    assert (at["at"], at["at_timestamp"]) == (4, 1_700_000_004_000)
    (after,) = run_json("offsets", timed, "--at", "2100-01-01T00:00:00Z")["partitions"]
    assert after["at"] is None
    assert run("offsets", timed).stdout.split() == [
        "PARTITION",
        "EARLIEST",
        "LATEST",
        "OFFSETS",
        "0",
        "0",
        "10",
        "10",
    ]


def test_an_empty_topic_reads_as_nothing(run, topic):
    run("topics", "create", topic, "--partitions", "4")
    assert run("consume", topic).stdout == ""


# Following, interrupting, pipes


@pytest.mark.promise(
    "commands",
    "`consume` starts at an offset, at a time or at the last N records, and can follow new records",
)
def test_follow_prints_records_as_they_come_until_interrupted(run, spawn, timed):
    follower = spawn("consume", timed, "--follow", "--from", "-1")
    assert follower.stdout.readline() == b"9\n"
    for n in range(3):
        run("produce", timed, stdin=b"new %d\n" % n)
        assert follower.stdout.readline() == b"new %d\n" % n
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=20)
    assert (follower.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_closes_the_pipe_is_no_failure(run, spawn, topic):
    run("produce", topic, stdin=b"".join(b"%0100d\n" % n for n in range(20_000)))
    reader = spawn("consume", topic)
    assert reader.stdout.readline() == b"%0100d\n" % 0
    reader.stdout.close()
    assert reader.wait(20) == 0
    assert reader.stderr.read() == b""


def test_interrupting_produce_keeps_what_was_read(run, spawn, topic):
    run("topics", "create", topic)
    writer = spawn("produce", topic, stdin=subprocess.PIPE)
    follower = spawn("consume", topic, "--follow", "--from", "earliest")
    writer.stdin.write(b"kept\n")
    writer.stdin.flush()
    assert follower.stdout.readline() == b"kept\n"
    writer.send_signal(signal.SIGINT)
    assert writer.wait(20) == 130
    assert writer.stderr.read().decode() == f"1 record (4 B) written to '{topic}'.\n"


def test_librdkafka_is_silent_unless_verbose(spawn, timed):
    quiet = spawn("consume", timed, "-X", "debug=consumer")
    assert quiet.communicate(timeout=30)[1] == b""
    loud = spawn("consume", timed, "-X", "debug=consumer", "--verbose")
    assert b"rdkafka" in loud.communicate(timeout=30)[1]


def test_a_wrong_client_setting_is_a_usage_error(run):
    assert 'no such configuration property: "no.such"' in run("cluster", "-X", "no.such=1", expect=2).stderr


# The rest


def test_the_cluster_is_described(run, run_json, bootstrap):
    found = run_json("cluster")
    host, _, port = bootstrap.rpartition(":")
    assert found["controller"] == 1 and found["id"]
    (broker,) = found["brokers"]
    assert (broker["id"], broker["host"], broker["port"], broker["rack"]) == (1, host, int(port), None)
    assert broker["leaders"] == broker["replicas"] == found["partitions"]
    assert broker["bytes"] >= 0
    assert not found["under_replicated"] and not found["moving"] and not found["away"]
    assert found["id"] in run("cluster").stdout


@pytest.mark.promise("commands", "Shell completion knows commands, settings and topics")
def test_topic_names_are_completed_from_the_cluster(spawn, timed):
    words = {"COMP_WORDS": f"penstock consume {timed[:-2]}", "COMP_CWORD": "2"}
    process = spawn(environment={"_PENSTOCK_COMPLETE": "bash_complete", **words})
    assert process.communicate(timeout=30)[0].decode() == f"plain,{timed}\n"


def test_bench_measures_produce_consume_and_latency(run, run_json, topic):
    wrote = run_json("bench", "produce", "--topic", topic, "--partitions", "2", "-n", "3000", "--size", "100")
    assert (wrote["records"], wrote["bytes"]) == (3000, 300_000)
    assert wrote["latency_p50_ms"] <= wrote["latency_p99_ms"] <= wrote["latency_max_ms"]
    read = run_json("bench", "consume", "--topic", topic)
    assert (read["records"], read["bytes"]) == (3000, 300_000)
    assert run_json("bench", "consume", "--topic", topic, "-n", "10")["records"] == 10
    trip = run_json("bench", "latency", "--topic", topic, "-n", "20", "--acks", "1")
    assert trip["records"] == 20 and trip["latency_p50_ms"] > 0
    assert (
        "records per second"
        in run("bench", "produce", "--topic", topic, "-n", "10", "--throughput", "1000").stdout
    )


def test_bench_of_an_empty_topic_says_so(run, topic):
    run("topics", "create", topic)
    assert f"topic '{topic}' is empty" in run("bench", "consume", "--topic", topic, expect=1).stderr
