"""`penstock up` and `penstock broker`: starting, where they listen, stopping, and what prevents it."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from penstock.admin.cluster import Cluster


@pytest.fixture
def start(tmp_path):
    """Start a command and give its process and the first line that it prints."""
    processes = []

    def start(*arguments, **environment):
        if arguments[0] == "up":
            # tests/registry/test_up.py, tests/connect/test_up.py and tests/console have them
            arguments += ("--no-registry", "--no-connect", "--no-console")
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=os.environ | environment,
        )
        processes.append(process)
        return process, process.stdout.readline()

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stop(process, number=signal.SIGINT):
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def refused(start, *arguments, **environment):
    """The one line on stderr of a start that must fail with exit code 1."""
    process, line = start(*arguments, **environment)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, line + out) == (1, ""), err
    (message,) = err.splitlines()
    return message


@pytest.mark.promise(
    "commands",
    "`penstock up` uses a free port, prints it and writes the ready file; a signal stops it cleanly",
)
def test_up_takes_a_free_port_prints_it_and_writes_the_ready_file(start, tmp_path):
    ready_file = tmp_path / "ready.json"
    process, line = start("up", "--json", "--port", "0", "--ready-file", str(ready_file))
    printed = json.loads(line)
    assert printed == json.loads(ready_file.read_text())
    (broker,) = printed["brokers"]
    assert broker["pid"] == process.pid and broker["port"] > 0
    assert printed["bootstrap"] == f"{broker['host']}:{broker['port']}" == f"127.0.0.1:{broker['port']}"
    assert Cluster(printed["bootstrap"], {}).topics() == {}
    assert (tmp_path / "data").is_dir()


@pytest.mark.promise(
    "commands",
    "`penstock up` uses a free port, prints it and writes the ready file; a signal stops it cleanly",
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_with_exit_code_0(start, number):
    process, line = start("up", "--json", "--port", "0")
    assert line
    code, _, err = stop(process, number)
    assert code == 0 and "Traceback" not in err


def test_up_tells_people_where_it_listens(start):
    process, line = start("up", "--port", "0", "--data", "here")
    address = line.split()[4]
    assert line == f"broker 1 listens on {address} (process {process.pid})\n"
    assert process.stdout.readline() == f"Ready at {address}, data in here. Ctrl-C stops it.\n"


def test_the_data_directory_comes_from_the_environment_and_outlives_the_process(start, tmp_path):
    where = str(tmp_path / "elsewhere")
    process, line = start("up", "--json", "--port", "0", PENSTOCK_DATA=where)
    bootstrap = json.loads(line)["bootstrap"]
    command = [sys.executable, "-m", "penstock"]
    subprocess.run(
        [*command, "produce", "t", "-b", bootstrap], input=b"kept\n", check=True, capture_output=True
    )
    assert stop(process)[0] == 0
    process, line = start("up", "--json", "--port", "0", "--data", where)
    bootstrap = json.loads(line)["bootstrap"]
    assert subprocess.check_output([*command, "consume", "t", "-b", bootstrap]) == b"kept\n"


def test_a_follower_waits_for_a_broker_that_restarts_and_goes_on(start):
    process, line = start("up", "--json", "--port", "0")
    ready = json.loads(line)
    address = ("-b", ready["bootstrap"])
    produce = [sys.executable, "-m", "penstock", "produce", "t", *address]
    subprocess.run(produce, input=b"before\n", check=True, capture_output=True)
    follower, line = start("consume", "t", "--follow", "--from", "earliest", *address)
    assert line == "before\n"
    assert stop(process)[0] == 0
    note = follower.stderr.readline()
    assert note.startswith(f"lost {ready['bootstrap']} (") and note.endswith("; waiting for it\n")
    start("up", "--json", "--port", str(ready["brokers"][0]["port"]))
    subprocess.run(produce, input=b"after\n", check=True, capture_output=True)
    assert follower.stdout.readline() == "after\n"
    assert stop(follower)[0] == 130


def test_settings_reach_the_broker(start):
    _, line = start("up", "--json", "--port", "0", "--set", "node.id=7", "--set", "num.partitions=3")
    ready = json.loads(line)
    assert ready["brokers"][0]["id"] == 7
    subprocess.run(
        [sys.executable, "-m", "penstock", "topics", "create", "t", "-b", ready["bootstrap"]],
        check=True,
        capture_output=True,
    )
    assert len(Cluster(ready["bootstrap"], {}).topic("t").partitions) == 3


def test_produce_to_a_topic_that_is_not_made_by_itself_is_refused(start):
    _, line = start("up", "--json", "--port", "0", "--set", "auto.create.topics.enable=false")
    bootstrap = json.loads(line)["bootstrap"]
    process = subprocess.run(
        [sys.executable, "-m", "penstock", "produce", "t", "-b", bootstrap], input=b"x\n", capture_output=True
    )
    assert process.returncode == 1
    assert process.stderr.decode() == (
        "Error: no topic 't' in this cluster. Create it with `penstock topics create t`.\n"
    )


@pytest.mark.promise(
    "commands",
    "`penstock broker` takes settings with Kafka's names from a file; options on the command line "
    "override it",
)
def test_broker_takes_a_properties_file_and_settings_over_it(start, tmp_path):
    (tmp_path / "server.properties").write_text(
        "# a broker\nnode.id=3\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=one\nnum.partitions=2\n"
    )
    process, line = start("broker", "--config", "server.properties", "--set", "log.dirs=two", "--json")
    ready = json.loads(line)
    assert ready["brokers"][0]["id"] == 3
    assert (tmp_path / "two").is_dir() and not (tmp_path / "one").exists()
    assert stop(process, signal.SIGTERM)[0] == 0


@pytest.mark.promise("commands", "Failures print one clear line that names the topic, setting or address")
def test_a_port_in_use_is_one_clear_line(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refused(start, "up", "--port", str(port))
    assert str(port) in message and "in use" in message.lower()


@pytest.mark.promise("crashes", "A second broker cannot use a data directory that is in use")
def test_a_data_directory_in_use_is_one_clear_line(start, tmp_path):
    start("up", "--json", "--port", "0", "--data", "shared")
    message = refused(start, "up", "--port", "0", "--data", "shared")
    assert "shared" in message


def test_a_data_directory_that_cannot_be_made_is_one_clear_line(start, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused(start, "up", "--port", "0", "--data", "file/below")
    assert "file" in message


def test_a_wrong_setting_is_named_with_the_nearest_one(start):
    message = refused(start, "up", "--port", "0", "--set", "num.partition=2")
    assert "num.partition" in message and "num.partitions" in message
    assert "num.partitions" in refused(start, "up", "--port", "0", "--set", "num.partitions=many")


def test_something_that_is_no_broker_is_told_apart_from_nothing(tmp_path):
    """A port that answers no request: the command gives up at its timeout and says what may be wrong."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        process = subprocess.run(
            [sys.executable, "-m", "penstock", "topics", "list", "--timeout", "1"]
            + ["-b", f"127.0.0.1:{silent.getsockname()[1]}"],
            capture_output=True,
            text=True,
        )
    assert process.returncode == 1
    (message,) = process.stderr.splitlines()
    assert "no answer from 127.0.0.1" in message and "Is it a Kafka broker" in message
