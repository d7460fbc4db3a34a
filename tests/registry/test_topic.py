"""The topic: Confluent's records byte for byte, read and written; what is in it is what counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.registry.planning import lost_record
from penstock.registry.records import NOOP, Key, decode_key, encode_key, encode_value
from penstock.registry.state import State, replay
from penstock.testing import PenstockBroker
from tests.registry.conftest import wait_until
from tests.registry.test_api import record, register

SCHEMA = record("a")


def put(subject, version, schema_id, schema=SCHEMA, **more):
    """A SCHEMA record as Confluent's registry writes it."""
    key = f'{{"keytype":"SCHEMA","subject":"{subject}","version":{version},"magic":1}}'.encode()
    value = {
        "subject": subject,
        "version": version,
        "id": schema_id,
        "schema": schema,
        "deleted": False,
    } | more
    return key, json.dumps(value).encode()


def tombstone(subject, version):
    return put(subject, version, 0)[0], None


@pytest.mark.promise("registry", "The topic has Confluent's format: each registry reads the other's topic")
def test_keys_are_confluents_bytes():
    assert encode_key(Key("SCHEMA", "s", 1)) == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    assert encode_key(Key("CONFIG", "s")) == b'{"keytype":"CONFIG","subject":"s","magic":0}'
    assert encode_key(Key("CONFIG")) == b'{"keytype":"CONFIG","magic":0}'
    assert (
        encode_key(Key("MODE", ":.eu:straße"))
        == '{"keytype":"MODE","subject":":.eu:straße","magic":0}'.encode()
    )
    assert encode_key(Key("DELETE_SUBJECT", "s")) == b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'
    assert encode_key(Key("CLEAR_SUBJECT", "s")) == b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'
    assert encode_key(Key("CONTEXT", ".eu")) == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}'
    )
    assert encode_key(NOOP) == b'{"keytype":"NOOP","magic":0}'
    for key in (Key("SCHEMA", 'a"b', 3), Key("MODE"), Key("CONTEXT", ".x"), NOOP):
        assert decode_key(encode_key(key)) == key


def test_a_subject_that_was_deleted_is_read_back_as_deleted():
    deletion = (
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":1}',
    )
    state = replay([put("s", 1, 1), deletion, put("s", 2, 2, record("b"))])
    assert [(entry.version, entry.deleted) for entry in state.versions("s", deleted=True)] == [
        (1, True), (2, False),
    ]  # fmt: skip
    assert state.by_id(1) is not None, "its data must stay readable"


def test_an_id_that_is_another_schemas_is_passed_over():
    state = replay([put("s", 1, 1), put("t", 1, 1, record("other"))])
    assert state.ignored == 1 and state.latest("t") is None and state.by_id(1).subject == "s"


def test_what_is_no_record_of_a_registry_is_passed_over():
    noise = [
        (None, b"x"), (b"x", None), (b"{}", b"{}"), (b'{"keytype":"SCHEMA","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s"}', b"{}"), (put("s", 1, 1)[0], b"[]"),
        (put("s", 1, 1)[0], b"{}"),
        (put("s", 1, 1)[0], b'{"id":1,"schema":3}'), (b'{"keytype":"MODE","subject":"s","magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":7}', put("s", 1, 1)[1]), (b"\xff", b"\xff"),
    ]  # fmt: skip
    state = replay([*noise, put("s", 1, 1)])
    assert state.latest("s").id == 1 and state.ignored == len(noise)
    newer = (b'{"keytype":"ASSOC","tenant":"default","magic":0}', b"{}")
    assert replay([newer]).ignored == 0, "what newer registries keep there is not for this one"


def test_a_key_in_an_older_spelling_is_written_under_its_own_bytes():
    """Or compaction would keep both, and the older would come back when the newer is gone."""
    older = b'{"keytype":"CONFIG","subject":null,"magic":0}'
    state = replay([(older, b'{"compatibilityLevel":"FULL"}')])
    assert state.config(None) == {"compatibilityLevel": "FULL"}
    assert state.key_bytes(Key("CONFIG")) == older
    assert state.key_bytes(Key("CONFIG", "s")) == encode_key(Key("CONFIG", "s"))


def noop(record):
    return encode_key(record.key), encode_value(record.value)


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_ids_of_schemas_that_compaction_has_forgotten_are_not_given_again():
    before = replay([put("s", 1, 7), put(":.eu:s", 1, 4)])
    kept = put(":.eu:s", 1, 4)
    # As it is written together with the deletion, and by the next leader.
    together = noop(lost_record(before, before.versions("s")))
    later = noop(lost_record(replay([put("s", 1, 7), kept, tombstone("s", 1), together])))
    for remembered in (together, later):
        compacted = replay([kept, remembered])
        assert (compacted.max_id("."), compacted.max_id(".eu")) == (7, 4)


@pytest.mark.promise(
    "registry", "The same schema has the same id everywhere; version numbers and ids are never reused"
)
def test_versions_that_compaction_has_forgotten_are_not_given_again_while_the_subject_has_others():
    one, two, three = put("s", 1, 1), put("s", 2, 2, record("b")), put("s", 3, 3, record("c"))
    before = replay([one, two, three])
    assert before.next_version("s") == 4
    together = noop(lost_record(before, [before.get("s", 3)]))
    after = replay([one, two, three, tombstone("s", 3), together])
    again = noop(lost_record(after, [after.get("s", 2)]))
    for records in ([one, two, together], [one, two, noop(lost_record(after))], [one, again], [again, one]):
        assert replay(records).next_version("s") == 4
    last = replay([one, again])
    emptied = [one, again, tombstone("s", 1), noop(lost_record(last, last.versions("s")))]
    assert replay(emptied).next_version("s") == 1 and replay(emptied[2:]).next_version("s") == 1


def test_the_record_of_what_is_gone_does_not_grow_with_the_contexts():
    state = replay([put(f":.c{index}:s", 1, index + 1) for index in range(1000)])
    assert lost_record(state).value == {"maxIds": {}}
    assert lost_record(state, state.versions(":.c7:s")).value == {"maxIds": {".c7": 8}}


def test_ten_thousand_schemas_are_replayed_without_parsing_one(monkeypatch):
    monkeypatch.setattr(
        "penstock.registry.parsing.parse", lambda *_, **__: pytest.fail("a schema was parsed")
    )
    state = replay(
        put(f"s{index % 100}", index // 100 + 1, index, record(f"f{index}")) for index in range(10_000)
    )
    assert state.counts() == (100, 10_000, 10_000)


@pytest.mark.promise("registry", "The topic has Confluent's format: each registry reads the other's topic")
def test_a_topic_that_confluents_registry_wrote_is_served(broker, registries):
    broker.create_topic("theirs", config={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    records = [
        (b'{"keytype":"NOOP","magic":0}', None),
        put("orders-value", 1, 1),
        put("orders-value", 2, 2, record("a", optional=("b",)), md5="qNDUBSBpQsdu4hbYt+nX5Q=="),
        put("gone", 1, 3, '"long"', deleted=True),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL_TRANSITIVE"}'),
        (b'{"keytype":"MODE","subject":"ro","magic":0}', b'{"subject":"ro","mode":"READONLY"}'),
        (b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
         b'{"tenant":"default","context":".eu"}'),
        put(":.eu:orders", 1, 1, '"int"'),
        put("proto", 1, 4, 'syntax = "proto3";\nmessage A {}\n', schemaType="PROTOBUF"),
    ]  # fmt: skip
    for key, value in records:
        producer.produce("theirs", value, key)
    producer.flush()
    theirs = registries.start(broker.bootstrap, "--topic", "theirs", "--group", "theirs")
    with theirs.client() as http:
        assert http.get("/subjects").json() == [":.eu:orders", "orders-value", "proto"]
        assert http.get("/subjects/orders-value/versions").json() == [1, 2]
        full = {"Confluent-Accept-Unknown-Properties": "true"}
        guid = http.get("/subjects/orders-value/versions/2", headers=full).json()["guid"]
        assert guid == "a8d0d405-2069-42c7-6ee2-16d8b7e9d7e5"
        assert http.get("/schemas/ids/3").json() == {"schema": '"long"'}
        assert http.get("/config").json() == {"compatibilityLevel": "FULL_TRANSITIVE"}
        assert http.get("/mode/ro").json() == {"mode": "READONLY"}
        assert http.get("/contexts").json() == [".", ".eu"]
        assert http.get("/schemas/ids/1?subject=:.eu:").json() == {"schema": '"int"'}
        assert register(http, "orders-value", record("a", optional=("b", "c"))) == 5


@pytest.mark.promise("registry", "The topic has Confluent's format: each registry reads the other's topic")
def test_what_is_written_is_in_confluents_format(broker, registries):
    ours = registries.start(broker.bootstrap, "--topic", "ours", "--group", "ours")
    with ours.client() as http:
        register(http, "s", SCHEMA, metadata={"properties": {"owner": "x"}})
        register(http, ":.eu:s", SCHEMA)
        http.put("/config", json={"compatibility": "NONE"})
        http.put("/mode/s", json={"mode": "READONLY"})
        http.delete("/mode/s")
        http.delete("/subjects/s")
        http.delete("/subjects/s?permanent=true")
    read = [record for record in read_all(broker.bootstrap, "ours") if decode_key(record[0]) != NOOP]
    stored = {"subject": "s", "version": 1, "id": 1, "schemaType": "AVRO", "deleted": False,
              "metadata": {"properties": {"owner": "x"}}}  # fmt: skip
    (key, value), context, (_, qualified), config, mode, mode_gone, deleted, gone = read
    assert key == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    fields = json.loads(value)
    assert json.loads(fields.pop("schema")) == json.loads(SCHEMA) and fields == stored
    assert context[1] == b'{"tenant":"default","context":".eu"}'
    assert json.loads(qualified)["subject"] == ":.eu:s"
    assert config == (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}')
    assert mode == (
        b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READONLY"}',
    )  # fmt: skip
    assert mode_gone == (mode[0], None)
    assert deleted == (
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}',
    )  # fmt: skip
    assert gone == (key, None)


def read_all(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.partition.eof": True,
                         "isolation.level": "read_committed", "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            break
        found.append((message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.promise("registry", "A topic whose settings would lose schemas is rejected")
@pytest.mark.parametrize(
    ("config", "partitions", "said"),
    [
        ({"cleanup.policy": "delete"}, 1, "cleanup.policy=delete"),
        ({"cleanup.policy": "compact"}, 2, "2 partitions"),
    ],
)
def test_a_topic_that_would_lose_schemas_is_refused(broker, registries, config, partitions, said):
    topic = f"bad-{partitions}"
    broker.create_topic(topic, partitions=partitions, config=config)
    refused = registries.start(broker.bootstrap, "--topic", topic, wait=False)
    assert refused.process.wait(60) == 1
    assert said in refused.log.read_text() and topic in refused.log.read_text()


@pytest.mark.promise("registry", "kill -9 and a restart keep every schema and id")
def test_kill_9_and_a_restart_keep_every_schema_and_id(broker, registries, tmp_path: Path):
    options = ("--topic", "kept", "--group", "kept")
    first = registries.start(broker.bootstrap, *options)
    with first.client() as http:
        ids = {name: register(http, name, record(name)) for name in ("a", "b", "c")}
        register(http, "a", record("a", optional=("z",)))
        http.delete("/subjects/b")
        before = http.get("/schemas?deleted=true").json()
    first.kill()
    second = registries.start(broker.bootstrap, *options, port=first.port)
    with second.client() as http:
        assert http.get("/schemas?deleted=true").json() == before
        assert http.get("/subjects").json() == ["a", "c"]
        assert {name: register(http, f"again-{name}", record(name)) for name in ids} == ids
        assert register(http, "d", record("d")) == max(ids.values()) + 2
    assert second.stop() == 0


def test_states_do_not_share_anything():
    assert State().counts() == State().counts() == (0, 0, 0)


@pytest.mark.timeout(180)
def test_a_cluster_that_was_away_is_written_to_again(registries):
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0}) as own:
        registry = registries.start(own.bootstrap)
        with registry.client() as http:
            first = register(http, "before", record("before"))
            own.kill()
            assert http.get(f"/schemas/ids/{first}").status_code == 200, "reads need no cluster"
            own.restart()
            body = {"schema": record("after")}

            def taken() -> bool:
                answer = http.post("/subjects/after/versions", json=body)
                assert answer.status_code == 200 or answer.json()["error_code"] in (50002, 50004), answer.text
                return answer.status_code == 200

            wait_until(taken)
            assert http.get("/subjects").json() == ["after", "before"]
        registry.stop()
