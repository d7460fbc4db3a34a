"""Several workers: shared work, failover, crashes of tasks, exactly once."""

from __future__ import annotations

import collections
import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Worker, Workers, until

NUMBERS = "trial_connectors.NumbersSource"
STRING = {"value.converter": "string"}


def numbers(topic: str, **more: object) -> dict[str, object]:
    return {"connector.class": NUMBERS, "topic": topic, **STRING, **more}


def group(request_name: str) -> list[str]:
    """Of its own: the workers of one test are no other test's."""
    words = ["--group", request_name]
    for kind in ("config", "offset", "status"):
        words += ["--set", f"{kind}.storage.topic={request_name}-{kind}"]
    return words


def values(found: list[Any]) -> dict[str, list[int]]:
    by_part: dict[str, list[int]] = collections.defaultdict(list)
    for each in found:
        part, number = each.value().decode().split()
        by_part[part].append(int(number))
    return by_part


@pytest.mark.promise(
    "connect",
    "The workers of a group share connectors and tasks evenly; kill -9 of a worker moves its tasks, and "
    "no record is lost",
)
def test_work_is_shared_and_a_killed_worker_loses_nothing(
    broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    one = workers.start(broker.bootstrap, *group(name))
    two = workers.start(broker.bootstrap, *group(name))
    one.put(name, numbers(name, **{"tasks.max": 4, "most": 400}))
    found = one.until_running(name, 4)
    where = collections.Counter(task["worker_id"] for task in found["tasks"])
    assert where == {one.id: 2, two.id: 2}
    # The one that does not run the connector: whoever leads dies in half of the runs.
    two.kill()
    until(
        lambda: [t["worker_id"] for t in one.until_running(name, 4)["tasks"]] == [one.id] * 4,
        "all tasks run on the worker that is left",
        lambda: str(one.status(name)),
    )

    def all_there(records: list[Any]) -> bool:
        parts = values(records)
        return len(parts) == 4 and all(set(part) == set(range(400)) for part in parts.values())

    topics.read_all(name, all_there, "all numbers of all parts")


@pytest.mark.promise(
    "connect",
    "Any worker accepts any request, and a client reads its own writes; a worker that stops hands over "
    "its tasks",
)
def test_a_connector_can_be_created_through_any_worker(
    broker: PenstockBroker, workers: Workers, name: str
) -> None:
    both = [workers.start(broker.bootstrap, *group(name), wait=False) for _ in range(2)]
    for number, worker in enumerate(both):
        worker.wait().create(f"{name}-{number}", **{"connector.class": NUMBERS, "topic": name})
        # A client reads its own writes, also through a worker that forwards them.
        assert f"{name}-{number}" in worker.http.get("/connectors").json()
    for worker in both:
        until(lambda w=worker: len(w.http.get("/connectors").json()) == 2, "both are everywhere")
        for number in range(2):
            worker.until_running(f"{name}-{number}")
    both[0].stop()
    for number in range(2):
        found = both[1].until_running(f"{name}-{number}")
        until(
            lambda n=number: both[1].status(f"{name}-{n}")["tasks"][0]["worker_id"] == both[1].id,
            "a worker that stops hands its tasks over",
        )
        assert found["type"] == "source"
    assert both[1].http.delete(f"/connectors/{name}-0").status_code == 204
    assert both[1].http.get("/connectors").json() == [f"{name}-1"]


@pytest.mark.promise("connect", "Connectors and offsets survive a restart of all workers")
def test_connectors_survive_a_restart_of_all_workers(
    broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    worker = workers.start(broker.bootstrap, *group(name))
    worker.put(name, numbers(name, most=20))
    worker.until_running(name)
    topics.read(name, 20)
    until(lambda: worker.http.get(f"/connectors/{name}/offsets").json()["offsets"], "offsets are committed")
    assert worker.stop() == 0
    again = workers.start(broker.bootstrap, *group(name))
    again.until_running(name)
    again.put(name, numbers(name, most=30))
    again.until_running(name)
    found = topics.read(name, 30)
    assert values(found)["0"] == list(range(30)), "it goes on after the committed offset"


@pytest.mark.promise(
    "connect",
    "A task that crashes, fails or blocks does not affect other tasks; it is restarted up to a limit, "
    "and its status has the trace",
)
@pytest.mark.parametrize("how", ["crash", "raise"])
def test_a_failed_task_is_started_again_and_others_run_on(
    worker: Worker, topics: Topics, tmp_path: Path, name: str, how: str
) -> None:
    worker.put(
        name,
        numbers(
            name,
            misbehave=how,
            mark=str(tmp_path / "mark"),
            most=10,
            **{"penstock.task.restart.backoff.ms": 50},
        ),
    )
    assert values(topics.read(name, 10))["0"] == list(range(10))
    worker.until_running(name)


@pytest.mark.promise(
    "connect",
    "A task that crashes, fails or blocks does not affect other tasks; it is restarted up to a limit, "
    "and its status has the trace",
)
def test_a_task_that_fails_for_good_says_why_and_can_be_restarted(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    mark = tmp_path / "mark"
    config = numbers(
        name,
        misbehave="raise",
        most=10,
        **{"penstock.task.restart.attempts": 1, "penstock.task.restart.backoff.ms": 10},
    )
    worker.put(name, {**config, "mark": ""})
    failed = worker.until_state(name, "FAILED")
    assert "ConnectError: this task fails on purpose" in failed["trace"] and "Traceback" in failed["trace"]
    answer = worker.http.post(f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")
    assert answer.status_code == 202 and answer.json()["name"] == name
    worker.until_state(name, "FAILED")
    mark.write_text("calm")
    worker.put(name, {**config, "mark": str(mark)})
    worker.until_running(name)
    assert len(topics.read(name, 10)) == 10


@pytest.mark.promise(
    "connect",
    "A task that crashes, fails or blocks does not affect other tasks; it is restarted up to a limit, "
    "and its status has the trace",
)
def test_a_crash_is_named_by_its_signal(worker: Worker, name: str) -> None:
    worker.put(name, numbers(name, misbehave="crash", **{"penstock.task.restart.attempts": 0}))
    assert "SIGSEGV" in worker.until_state(name, "FAILED")["trace"]


@pytest.mark.promise(
    "connect",
    "A task that crashes, fails or blocks does not affect other tasks; it is restarted up to a limit, "
    "and its status has the trace",
)
def test_a_task_that_blocks_holds_nobody_up(worker: Worker, topics: Topics, name: str) -> None:
    worker.put(name, numbers(name, misbehave="block"))
    worker.until_running(name)
    worker.put(f"{name}-other", numbers(f"{name}-other", most=10))
    assert len(topics.read(f"{name}-other", 10)) == 10
    begun = time.monotonic()
    assert worker.http.delete(f"/connectors/{name}").status_code == 204
    assert time.monotonic() - begun < 4, "deleting does not wait for a task that blocks"


@pytest.mark.promise(
    "connect",
    "An unavailable source or sink is retried and shown in the status; a sink gets each record when it "
    "is available again",
)
def test_a_source_that_is_away_is_retried_and_shown(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    worker.put(name, numbers(name, misbehave="retry", most=10))

    def shown() -> bool:
        tasks = worker.status(name)["tasks"]
        return bool(tasks) and "the source is away" in tasks[0].get("trace", "")

    until(shown, "the status has the error")
    assert worker.status(name)["tasks"][0]["state"] == "RUNNING"
    worker.put(name, numbers(name, most=10))
    assert len(topics.read(name, 10)) == 10


@pytest.mark.promise(
    "connect",
    "Exactly once for sources, also with kill -9 of worker and tasks; and for sinks that store their "
    "offsets with their data",
)
def test_exactly_once_survives_kills_of_worker_and_task(
    broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    once = ["--set", "exactly.once.source.support=enabled"]
    worker = workers.start(broker.bootstrap, *group(name), *once)
    config = numbers(name, most=300, **{"tasks.max": 2, "exactly.once.support": "required"})
    worker.put(name, config)
    worker.until_running(name, 2)
    topics.read(name, 20)
    worker.kill()
    again = workers.start(broker.bootstrap, *group(name), *once)
    again.until_running(name, 2)
    kill_tasks(again.process.pid)

    def all_there(records: list[Any]) -> bool:
        parts = values(records)
        return len(parts) == 2 and all(len(part) >= 300 for part in parts.values())

    parts = values(topics.read_all(name, all_there, "300 numbers of both parts"))
    assert {part: sorted(found) for part, found in parts.items()} == {
        "0": list(range(300)),
        "1": list(range(300)),
    }
    # The tasks are fenced, and the offsets written in a transaction of the first one.
    again.http.put(f"/connectors/{name}/stop")
    again.until_state(name, "STOPPED", None)
    wanted = {"offsets": [{"partition": {"part": str(part)}, "offset": {"next": 297}} for part in range(2)]}
    until(
        lambda: again.http.patch(f"/connectors/{name}/offsets", json=wanted).status_code == 200,
        "the offsets are altered",
    )
    again.http.put(f"/connectors/{name}/resume")

    def come_again(records: list[Any]) -> bool:
        return len(records) >= 606

    parts = values(topics.read_all(name, come_again, "the last three numbers of both parts again"))
    for found in parts.values():
        assert sorted(found) == sorted([*range(300), 297, 298, 299])


def task_processes(worker: int) -> list[int]:
    """Children of the worker: its tasks, and processes that answer a question and then end."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == worker:
                found.append(int(entry.name))
    return found


def kill_tasks(worker: int) -> None:
    for pid in task_processes(worker):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.promise(
    "connect",
    "A changed log level applies to the worker's running tasks and to those that start later; with "
    "scope=cluster it applies to all workers (KIP-976)",
)
def test_log_levels_reach_the_tasks_of_one_worker_or_of_all(
    broker: PenstockBroker, workers: Workers, name: str
) -> None:
    both = [workers.start(broker.bootstrap, *group(name), wait=False) for _ in range(2)]
    one, other = (worker.wait() for worker in both)
    until(
        lambda: all(re.search(r"workers in the group: \S+, ", worker.log.read_text()) for worker in both),
        "they are two",
    )
    one.put("tasks", numbers(name, **{"tasks.max": 2}))
    status = one.until_running("tasks", 2)
    assert {task["worker_id"] for task in status["tasks"]} == {one.id, other.id}

    def polls(worker: Worker, connector: str) -> bool:
        return f"DEBUG trial.{connector}: task" in worker.log.read_text()

    def set_level(worker: Worker, logger: str, scope: str) -> Any:
        answer = worker.http.put(f"/admin/loggers/{logger}{scope}", json={"level": "debug"})
        return answer.status_code, answer.text and answer.json()

    assert set_level(one, "trial.tasks", "") == (200, ["trial.tasks"])
    until(lambda: polls(one, "tasks"), "the task of the worker logs")
    assert not polls(other, "tasks")
    for worker in both:
        # One of them leads.
        assert set_level(worker, f"trial.{worker is one}", "?scope=cluster") == (204, "")
    assert set_level(other, "trial", "?scope=cluster") == (204, "")
    until(lambda: polls(other, "tasks"), "the task of the other worker logs")
    for worker in both:
        for logger in ("trial", "trial.True", "trial.False"):
            assert until(
                lambda w=worker, at=logger: w.http.get(f"/admin/loggers/{at}").json().get("level"),
                "it is known",
            ) == ("DEBUG")
    one.put("later", numbers(name, **{"tasks.max": 2}))
    one.until_running("later", 2)
    until(lambda: polls(one, "later") and polls(other, "later"), "tasks that start later log")
    code, _ = set_level(one, "root", "?scope=galaxy")
    assert code == 200
    bad = one.http.put("/admin/loggers/root?scope=cluster", json={"level": "loud"})
    assert bad.status_code == 404


@pytest.mark.promise("connect", "The state topics contain records in Kafka Connect's format")
def test_the_state_topics_have_kafka_connects_records(
    broker: PenstockBroker, worker: Worker, topics: Topics, name: str
) -> None:
    worker.put(name, numbers(name, most=10))
    worker.until_running(name)
    topics.read(name, 10)
    worker.http.put(f"/connectors/{name}/stop")
    worker.until_state(name, "STOPPED", None)
    until(lambda: worker.http.get(f"/connectors/{name}/offsets").json()["offsets"], "offsets are committed")

    def records(topic: str, enough: Any) -> dict[str, Any]:
        found = topics.read_all(topic, lambda all_of: enough(table(all_of)), f"records in {topic}")
        return table(found)

    def table(found: list[Any]) -> dict[str, Any]:
        return {each.key().decode(): json.loads(each.value() or b"null") for each in found}

    configs = records("connect-configs", lambda found: found.get(f"commit-{name}") == {"tasks": 0})
    assert configs[f"connector-{name}"]["properties"]["connector.class"] == NUMBERS
    assert configs[f"task-{name}-0"]["properties"]["part"] == "0"
    assert configs[f"target-state-{name}"] == {"state": "PAUSED", "state.v2": "STOPPED"}
    offsets = records("connect-offsets", lambda found: f'["{name}",{{"part":"0"}}]' in found)
    assert offsets[f'["{name}",{{"part":"0"}}]'] == {"next": 10}
    key = f"status-connector-{name}"
    statuses = records("connect-status", lambda found: found.get(key, {}).get("state") == "STOPPED")
    assert statuses[key].keys() >= {"state", "trace", "worker_id", "generation"}
    assert statuses[f"status-topic-{name}:connector-{name}"]["topic"]["name"] == name
