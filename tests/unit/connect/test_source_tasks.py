"""What a source task does with its producer: when it commits, and what it does while either end is away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import AuthenticationFailed, ClientError
from penstock.connect.api import (
    ConnectError,
    Field,
    OffsetsReader,
    RetriableError,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from penstock.connect.runtime import batch_source, source, task
from penstock.connect.runtime.batch_source import BatchRunner
from penstock.connect.runtime.clients import WorkerSettings, make_producer
from penstock.connect.runtime.offsets import StoredOffsets
from penstock.connect.runtime.scout import Scout
from penstock.connect.runtime.source import SourceRunner
from penstock.connect.runtime.task import TaskSpec
from penstock.connect.runtime.validation import validation

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
ONCE = WorkerSettings(NOWHERE, exactly_once=True)


class StepsTask(SourceTask):
    """Does one step of `plan` for each poll: returns a record, or raises."""

    plan: Iterator[Any] = iter(())
    log: list[Any] = []

    def start(self, config: Mapping[str, str], offsets_reader: OffsetsReader) -> None:
        self.log.append("start")

    def poll(self) -> list[SourceRecord]:
        step = next(self.plan)
        if callable(step):
            step = step()
        if isinstance(step, Exception):
            raise step
        return (
            []
            if step is None
            else [SourceRecord("t", step, source_partition={"p": 0}, source_offset={"n": step})]
        )

    def commit(self, offsets: Any) -> None:
        self.log.append(("committed", [offset["n"] for _, offset in offsets]))

    def stop(self) -> None:
        self.log.append("stop")


class StepsSource(SourceConnector):
    task_class = StepsTask
    exactly_once = True
    fields = (Field("other", default="", doc="Nothing."),)


class Told:
    """The worker's end of the channel; `on` is called with each kind of message."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.on: Callable[[str], None] = lambda kind: None

    def send(self, kind: str, **more: Any) -> None:
        self.kinds.append(kind)
        self.on(kind)


class KeptProducer:
    """Says what was asked of it, and fails as it is told to."""

    failures: dict[str, list[KafkaError]] = {}

    def __init__(self, log: list[Any], on_delivery: Any) -> None:
        self._log, self._on_delivery = log, on_delivery

    def _step(self, name: str) -> None:
        self._log.append(name)
        if self.failures.get(name):
            raise KafkaException(self.failures[name].pop(0))

    def init_transactions(self, timeout: float) -> None:
        self._step("init")

    def begin_transaction(self) -> None:
        self._step("begin")

    def commit_transaction(self, timeout: float) -> None:
        self._step("commit")

    def produce(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> None:
        self._step(f"produce {topic}")

    def poll(self, timeout: float) -> int:
        for error in self.failures.pop("delivery", ()):
            self._on_delivery(error, self)
        return 0

    def topic(self) -> str:
        return "t"

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)


class Run:
    def __init__(
        self, worker: WorkerSettings, config: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.log: list[Any] = []
        self.failures: dict[str, list[KafkaError]] = {}
        self.told = Told()
        config = {"name": "n", "connector.class": f"{__name__}:StepsSource", **config}
        self.spec = TaskSpec("n", 0, config, config, worker, self.told)  # type: ignore[arg-type]
        monkeypatch.setattr(StepsTask, "log", self.log)
        monkeypatch.setattr(KeptProducer, "failures", self.failures)
        monkeypatch.setattr(source, "make_producer", lambda w, c, i, done, **_: KeptProducer(self.log, done))
        monkeypatch.setattr(source, "create_topic", lambda *_: None)
        monkeypatch.setattr(source, "read_offsets", self._read_offsets)
        monkeypatch.setattr(task, "_LONGEST_PAUSE", 0.0)
        self._patch = monkeypatch

    def _read_offsets(self, *_: Any) -> StoredOffsets:
        self.log.append("offsets")
        return StoredOffsets("n", {})

    def run(self, *plan: Any) -> None:
        """Until the plan is at its end."""

        def steps() -> Iterator[Any]:
            yield from plan
            self.spec.stop()
            yield None

        self._patch.setattr(StepsTask, "plan", steps())
        SourceRunner(self.spec).run()


@pytest.mark.promise(
    "connect",
    "A source or sink that cannot be reached is retried and shown in the status; a sink gets each record "
    "when it can be reached again",
)
def test_what_was_read_is_committed_before_the_task_waits_for_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(WorkerSettings(NOWHERE, offsets_directory=str(tmp_path)), {}, monkeypatch)
    seen: list[Any] = []
    run.told.on = lambda kind: seen.append([*run.log]) if kind == "retrying" else None
    run.run(1, 2, RetriableError("the source is away"), 3)
    assert ("committed", [2]) in seen[0]
    assert ("committed", [3]) in run.log and "retrying" in run.told.kinds


@pytest.mark.promise(
    "connect",
    "A source or sink that cannot be reached is retried and shown in the status; a sink gets each record "
    "when it can be reached again",
)
def test_a_transaction_is_not_left_open_while_the_source_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(ONCE, {"transaction.boundary": "interval"}, monkeypatch)
    seen: list[Any] = []
    run.told.on = lambda kind: seen.append([*run.log]) if kind == "retrying" else None
    run.run(1, RetriableError("the source is away"))
    assert seen[0].count("commit") == seen[0].count("begin") == 1


def test_a_record_that_was_not_delivered_fails_the_task_also_while_the_source_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(WorkerSettings(NOWHERE), {}, monkeypatch)

    def away() -> Exception:
        run.failures["delivery"] = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
        return RetriableError("the source is away")

    with pytest.raises(ConnectError, match="a record for topic t was not delivered"):
        run.run(RetriableError("the source is away"), away, 1, 2)
    assert run.log[-1] == "stop"


@pytest.mark.promise(
    "connect", "An exactly-once source continues after an outage of the cluster, however long it is"
)
@pytest.mark.parametrize(
    "where", ["init", "begin", "commit", "delivery", "produce t", "produce connect-offsets"]
)
def test_a_cluster_that_is_away_does_not_fail_the_task(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(ONCE, {}, monkeypatch)
    away = KafkaError(KafkaError._MSG_TIMED_OUT if where == "delivery" else KafkaError._TIMED_OUT)
    if where.startswith("produce"):
        run.failures["commit"] = [away]  # a transaction that failed takes no records, and its commit says why
        run.failures[where] = [KafkaError(KafkaError._STATE)]
    else:
        run.failures[where] = [away] * (5 if where == "init" else 1)
    run.run(1, 2, 3)
    states = [kind for kind in run.told.kinds if kind != "topics"]
    assert "retrying" in states and states[-1] == "running"
    start = len(run.log) - 1 - run.log[::-1].index("init")
    assert run.log[start : start + 3] == ["init", "offsets", "start"]
    assert run.log.count("start") == run.log.count("stop") == (1 if where == "init" else 2)
    assert ("committed", [3]) in run.log[start:]


@pytest.mark.promise(
    "connect", "An exactly-once source continues after an outage of the cluster, however long it is"
)
def test_offsets_that_cannot_be_read_are_read_when_the_cluster_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(ONCE, {}, monkeypatch)
    errors: list[Exception] = [KafkaException(KafkaError(KafkaError._TRANSPORT)), ClientError("no answer")]

    def read_offsets(*_: Any) -> StoredOffsets:
        if errors:
            raise errors.pop()
        return StoredOffsets("n", {})

    monkeypatch.setattr(source, "read_offsets", read_offsets)
    run.run(1)
    assert run.told.kinds.count("retrying") == 2 and ("committed", [1]) in run.log
    errors.append(AuthenticationFailed("who are you"))
    again = Run(ONCE, {}, monkeypatch)
    monkeypatch.setattr(source, "read_offsets", read_offsets)
    with pytest.raises(ConnectError, match="who are you"):
        again.run(1)


@pytest.mark.parametrize("where", ["init", "commit"])
def test_a_task_that_was_fenced_fails(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(ONCE, {}, monkeypatch)
    run.failures[where] = [KafkaError(KafkaError._FENCED, "fenced", True)]
    with pytest.raises(ConnectError, match="fenced"):
        run.run(1, 2)
    assert "retrying" not in run.told.kinds


# Clients


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of each producer."""
    found: list[dict[str, Any]] = []

    class Producer(KeptProducer):
        def __init__(self, settings: dict[str, Any], logger: Any) -> None:
            super().__init__([], settings.get("on_delivery"))
            found.append({**settings, "log": self._log})

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    return found


@pytest.mark.promise(
    "connect",
    "A source's transaction is committed before the cluster's transaction timeout, whatever the commit "
    "interval is",
)
@pytest.mark.parametrize(
    ("properties", "config", "timeout", "message", "interval"),
    [
        ({}, {}, 60_000, 60_000, 30.0),
        ({}, {"transaction.boundary.interval.ms": "5000"}, 60_000, 60_000, 5.0),
        ({}, {"transaction.boundary.interval.ms": "45000"}, 60_000, 60_000, 30.0),
        ({"producer.transaction.timeout.ms": "20000"}, {}, 20_000, 20_000, 10.0),
        ({"producer.transaction.timeout.ms": "20000"}, {"producer.override.transaction.timeout.ms": "200000"},
         200_000, 200_000, 60.0),
        ({}, {"producer.override.delivery.timeout.ms": "40000"}, 60_000, 40_000, 30.0),
        ({}, {"producer.override.delivery.timeout.ms": "400000"}, 60_000, 60_000, 30.0),
    ],
)  # fmt: skip
def test_a_transaction_is_committed_before_it_times_out(
    properties: dict[str, str], config: dict[str, str], timeout: int, message: int, interval: float,
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    worker = WorkerSettings(NOWHERE, properties, exactly_once=True)
    run = Run(worker, {"transaction.boundary": "interval", **config}, monkeypatch)
    monkeypatch.setattr(source, "make_producer", make_producer)
    run.run(1)
    (settings,) = made
    assert int(settings["transaction.timeout.ms"]) == timeout
    assert int(settings["message.timeout.ms"]) == message
    assert SourceRunner(run.spec)._interval == interval


@pytest.mark.promise(
    "connect",
    "A source's transaction is committed before the cluster's transaction timeout, whatever the commit "
    "interval is",
)
def test_replication_takes_the_transaction_timeout_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(batch_source, "BatchProducer", lambda *_, **named: found.append(named))
    config = {"name": "n", "connector.class": "MirrorSourceConnector", "source.cluster.alias": "a"}
    config["producer.override.transaction.timeout.ms"] = "7000"
    BatchRunner(TaskSpec("n", 0, config, config, ONCE, Told()))  # type: ignore[arg-type]
    assert found == [{"transaction_timeout_ms": 7000}]


@pytest.mark.promise(
    "connect",
    "A source's transaction is committed before the cluster's transaction timeout, whatever the commit "
    "interval is",
)
def test_an_interval_that_no_transaction_lasts_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "transaction.boundary.interval.ms"
    config = {"name": "n", "connector.class": f"{__name__}:StepsSource", "transaction.boundary": "interval"}
    config[name] = "60000"

    def errors(worker: WorkerSettings, **more: str) -> dict[str, list[str]]:
        found = validation(config["connector.class"], {**config, **more}, worker)["configs"]
        return {
            each["definition"]["name"]: each["value"]["errors"] for each in found if each["value"]["errors"]
        }

    refused = errors(ONCE)
    assert list(refused) == [name] and "producer.override.transaction.timeout.ms" in refused[name][0]
    with pytest.raises(ConnectError, match=name):
        Run(ONCE, config, monkeypatch).run()
    override = "producer.override.transaction.timeout.ms"
    assert errors(ONCE, **{override: "120000"}) == errors(WorkerSettings(NOWHERE)) == {}
    assert (
        errors(WorkerSettings(NOWHERE, {"producer.transaction.timeout.ms": "120000"}, exactly_once=True))
        == {}
    )
    assert list(errors(ONCE, **{override: "long"})) == [override]


@pytest.mark.promise(
    "connect", "A source task holds at most 64 MB of records that the cluster has not acknowledged"
)
@pytest.mark.parametrize("name", ["buffer.memory", "queue.buffering.max.kbytes"])
def test_the_records_that_wait_for_the_cluster_are_bounded(made: list[dict[str, Any]], name: str) -> None:
    worker = WorkerSettings(NOWHERE)
    size = str((1 << 20) if name == "buffer.memory" else 1024)
    make_producer(worker, {}, "x")
    make_producer(worker, {f"producer.override.{name}": size}, "x")
    make_producer(WorkerSettings(NOWHERE, {f"producer.{name}": size}), {}, "x")
    make_producer(worker, {"producer.override.max.request.size": str(128 << 20)}, "x")
    found = [(int(each["queue.buffering.max.kbytes"]), int(each["message.max.bytes"])) for each in made]
    # A record that is larger than all that may wait would wait for ever.
    assert found == [(65_537, 64 << 20), (1024, 1 << 20), (1024, 1 << 20), (131_073, 128 << 20)]


def test_librdkafka_holds_no_more_than_it_may() -> None:
    producer = make_producer(WorkerSettings(NOWHERE), {"producer.override.buffer.memory": "1048576"}, "x")
    taken = 0
    with pytest.raises(BufferError):
        while taken < 100:
            producer.produce("t", b"x" * 100_000)
            taken += 1
    assert taken == 10
    with pytest.raises(KafkaException, match="size too large"):
        producer.produce("t", b"x" * (2 << 20))
    producer.purge()


# Offsets that a user sets


class Offsets:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from penstock.connect.runtime import scout

        monkeypatch.setattr(scout, "read_offsets", lambda *_: StoredOffsets("n", {'["n",{"p":0}]': {"n": 1}}))
        self.config = {"name": "n", "connector.class": f"{__name__}:StepsSource"}
        self.config["producer.override.linger.ms"] = "77"


@pytest.mark.promise(
    "connect",
    "The offsets of an exactly-once source are altered in one transaction, after all its tasks have been "
    "fenced",
)
@pytest.mark.parametrize("reset", [False, True])
def test_earlier_tasks_are_fenced_before_offsets_are_altered(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, reset: bool
) -> None:
    given = Offsets(monkeypatch)
    offsets = None if reset else [{"partition": {"p": n}, "offset": {"n": 5}} for n in range(2)]
    Scout(ONCE).alter_offsets("n", given.config, offsets, tasks=2)
    ids = [each["transactional.id"] for each in made]
    assert ids == ["connect-cluster-n-0", "connect-cluster-n-1", "connect-cluster-n-0"]
    assert [each["log"] for each in made[:2]] == [["init"], ["init"]]
    writes = ["produce connect-offsets"] * (1 if reset else 2)
    assert made[2]["log"] == ["init", "begin", *writes, "commit"]
    assert {each["linger.ms"] for each in made} == {"77"}


def test_offsets_are_altered_without_a_transaction_where_delivery_is_at_least_once(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Offsets(monkeypatch)
    Scout(WorkerSettings(NOWHERE)).alter_offsets("n", given.config, None, tasks=2)
    (settings,) = made
    assert settings["log"] == ["produce connect-offsets"] and "transactional.id" not in settings


def test_fencing_takes_the_settings_of_the_connector(made: list[dict[str, Any]]) -> None:
    Scout(ONCE).fence("n", 1, {"producer.override.linger.ms": "77"})
    assert made[0]["linger.ms"] == "77" and made[0]["log"] == ["init"]
