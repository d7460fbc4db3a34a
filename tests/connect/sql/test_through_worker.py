"""SQL source and sink in a Connect worker: kills, a database that goes away, bad records, settings."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.connect.conftest import Topics, Worker, Workers, until
from tests.connect.sql.conftest import Target
from tests.connect.test_workers import group, kill_tasks

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker
    from tests.connect.postgres.server import PostgresServer

JSON = {
    "key.converter": "string",
    "value.converter": "json",
    "value.converter.schemas.enable": "false",
}
COUNT = 3000


def sink(target: Target, topic: str, **settings: object) -> dict[str, object]:
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "connection.url": target.url,
        "topics": topic,
        "table.name.format": "items",
        "auto.create": "true",
        # A task that was killed leaves the group after this.
        "consumer.override.session.timeout.ms": 3000,
        **JSON,
        **settings,
    }


def numbers(first: int, last: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, last)]


def ids(target: Target) -> list[int]:
    try:
        return sorted(row[0] for row in target.query("SELECT n FROM items"))
    except sqlalchemy.exc.DBAPIError:
        return []  # there is no table yet


def count(target: Target) -> int:
    return len(ids(target))


def committed(worker: Worker, name: str) -> int:
    """Up to where the sink has written."""
    answer = worker.http.get(f"/connectors/{name}/offsets")
    kept = answer.json()["offsets"] if answer.status_code == 200 else []  # there is no group yet
    return int(kept[0]["offset"]["kafka_offset"]) if kept else 0


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.promise("connect", "SQL: a sink that is killed under load writes each record to its table once")
@pytest.mark.timeout(300)
def test_kills_under_load_lose_and_double_nothing(
    target: Target, broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    worker = workers.start(broker.bootstrap, *group(name))
    topics.write(name, *numbers(0, COUNT // 2))
    worker.put(name, sink(target, name, **{"batch.size": 100}))
    worker.until_running(name)
    until(lambda: committed(worker, name) > 0, "the first rows", lambda: str(worker.status(name)))
    worker.kill()
    topics.write(name, *numbers(COUNT // 2, COUNT))
    worker = workers.start(broker.bootstrap, *group(name))
    worker.until_running(name)
    before = committed(worker, name)
    until(lambda: committed(worker, name) > before or before == COUNT, "more rows")
    kill_tasks(worker.process.pid)
    until(lambda: committed(worker, name) == COUNT, f"{COUNT} rows", lambda: str(worker.status(name)))
    assert worker.http.delete(f"/connectors/{name}").status_code == 204
    assert ids(target) == list(range(COUNT))


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.promise(
    "connect",
    "SQL: the status shows that a database is unavailable, and writing continues when it is available again",
)
def test_a_database_that_goes_away_is_shown_and_picked_up_again(
    target: Target, shared_postgres: PostgresServer, worker: Worker, topics: Topics, name: str
) -> None:
    topics.write(name, *numbers(0, 10))
    worker.put(name, sink(target, name))
    worker.until_running(name)
    until(lambda: count(target) == 10, "the first rows")
    shared_postgres.stop(signal.SIGQUIT)
    try:
        topics.write(name, *numbers(10, 20))

        def shown() -> bool:
            tasks = worker.status(name)["tasks"]
            return bool(tasks) and "RetriableError" in tasks[0].get("trace", "")

        until(shown, "the status has the error")
        assert worker.status(name)["tasks"][0]["state"] == "RUNNING"
    finally:
        shared_postgres.start()
    until(lambda: count(target) == 20, "the rows after")
    assert ids(target) == list(range(20))
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.promise(
    "connect",
    "SQL: a record that the database rejects goes to the dead-letter topic, and the others are written "
    "to the table",
)
def test_a_record_that_the_database_refuses_goes_to_the_dead_letter_topic(
    target: Target, worker: Worker, topics: Topics, name: str
) -> None:
    target.execute("CREATE TABLE items (n INTEGER PRIMARY KEY)")
    topics.write(name, *numbers(0, 5), *numbers(3, 4), b'"no row"', *numbers(5, 8))
    settings = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{name}-dead",
        "errors.deadletterqueue.topic.replication.factor": 1,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker.put(name, sink(target, name, **settings))
    until(lambda: count(target) == 8, "the good ones", lambda: str(worker.status(name)))
    dead = topics.read(f"{name}-dead", 2)
    assert [each.value() for each in dead] == [b'{"n": 3}', b'"no row"']
    assert (
        "UNIQUE constraint failed" in dict(dead[0].headers())["__connect.errors.exception.message"].decode()
    )
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.promise(
    "connect",
    "SQL: offsets are stored in the same database as the data, and can be set while the connector is stopped",
)
def test_offsets_of_a_stopped_sink_can_be_set(
    target: Target, worker: Worker, topics: Topics, name: str
) -> None:
    topics.write(name, *numbers(0, 10))
    worker.put(name, sink(target, name))
    until(lambda: count(target) == 10, "the rows")
    worker.http.put(f"/connectors/{name}/stop")
    worker.until_state(name, "STOPPED", None)
    place = {"kafka_topic": name, "kafka_partition": 0}
    wanted = {"offsets": [{"partition": place, "offset": {"kafka_offset": 4}}]}
    until(
        lambda: worker.http.patch(f"/connectors/{name}/offsets", json=wanted).status_code == 200,
        "the offsets are set",
    )
    worker.http.put(f"/connectors/{name}/resume")
    until(lambda: count(target) == 16, "the rows once more from the fifth on")
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.promise(
    "connect", "SQL: a consumer group that is behind the stored offsets is moved to them when its task starts"
)
def test_a_group_behind_the_stored_offsets_catches_up(
    target: Target, broker: PenstockBroker, worker: Worker, topics: Topics, name: str
) -> None:
    topics.write(name, *numbers(0, 10))
    worker.put(name, sink(target, name))
    until(lambda: committed(worker, name) == 10, "all is committed")
    worker.http.put(f"/connectors/{name}/stop")
    worker.until_state(name, "STOPPED", None)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    behind = ConsumerGroupTopicPartitions(f"connect-{name}", [TopicPartition(name, 0, 4)])

    def set_back() -> bool:  # the group is not empty until its last member has left
        try:
            found = admin.alter_consumer_group_offsets([behind])[behind.group_id].result(10)
        except KafkaException:
            return False
        return all(each.error is None for each in found.topic_partitions)

    until(set_back, "the group's offset is set back")
    worker.http.put(f"/connectors/{name}/resume")
    until(lambda: committed(worker, name) == 10, "the group has caught up", lambda: str(worker.status(name)))
    assert ids(target) == list(range(10))
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.promise("connect", "SQL: rows are in a topic exactly once, also when worker and task are killed")
def test_rows_are_in_a_topic_exactly_once_through_kills(
    target: Target, broker: PenstockBroker, workers: Workers, topics: Topics, name: str
) -> None:
    target.execute(
        "CREATE TABLE items (n INTEGER PRIMARY KEY, changed TIMESTAMP NOT NULL DEFAULT now())",
        f"INSERT INTO items SELECT n FROM generate_series(1, {COUNT}) n",
    )
    options = [*group(name), "--set", "exactly.once.source.support=enabled"]
    config = {
        "connector.class": "SqlSource",
        "connection.url": target.url,
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "changed",
        "incrementing.column.name": "n",
        "topic.prefix": f"{name}-",
        "table.whitelist": "items",
        "poll.interval.ms": 50,
        "batch.max.rows": 100,
        "exactly.once.support": "required",
        **JSON,
    }
    worker = workers.start(broker.bootstrap, *options)
    worker.put(name, config)
    topic = f"{name}-items"
    topics.read(topic, 100)
    worker.kill()
    worker = workers.start(broker.bootstrap, *options)
    worker.until_running(name)
    kill_tasks(worker.process.pid)
    target.execute(
        f"INSERT INTO items VALUES ({COUNT + 1})", "UPDATE items SET changed = clock_timestamp() WHERE n = 7"
    )

    def values(found: list[Any]) -> list[int]:
        return sorted(json.loads(each.value())["n"] for each in found)

    found = values(topics.read_all(topic, lambda all_of: len(all_of) >= COUNT + 2, "all rows"))
    # Before or after its change: the row of 7 may be read twice, and every other once.
    assert found == sorted([*range(1, COUNT + 2), 7])


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.promise("connect", "SQL: invalid settings are rejected with an error that names them")
def test_bad_settings_are_refused_by_name(target: Target, worker: Worker, name: str) -> None:
    bad = sink(target, name, **{"connection.url": target.url.rpartition("/")[0] + "/nowhere"})
    answer = worker.http.put(f"/connectors/{name}/config", json=bad)
    assert answer.status_code == 400
    assert "connection.url" in answer.text and 'database "nowhere" does not exist' in answer.json()["message"]
