"""`penstock groups` against a real broker, with real members."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from penstock.cli.main import cli
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

PAST_MS = 100_000


@pytest.fixture(scope="module")
def broker():
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
    with PenstockBroker(settings) as process:
        yield process


@pytest.fixture
def run(broker):
    """Run a command line; its exit code must be `expect`, and a failure must be one line."""

    def run(*arguments, expect=0):
        result = CliRunner().invoke(cli, arguments, env={"PENSTOCK_BOOTSTRAP": broker.bootstrap})
        assert result.exit_code == expect, (result.output, result.exception)
        if expect == 1:
            assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
        return result

    return run


@pytest.fixture
def run_json(run):
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(broker):
    """A topic of two partitions with five records each, a second apart, the first a while ago."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 2)
    began = int(time.time() * 1000) - PAST_MS
    broker.produce(
        name,
        [
            {"value": f"{n}", "partition": partition, "timestamp": began + n * 1000}
            for partition in (0, 1)
            for n in range(5)
        ],
    )
    return name


@pytest.fixture
def commit(broker, group):
    """Commit offsets for the group without becoming its member."""

    def commit(topic, offsets):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    return commit


@pytest.fixture
def member(broker, group, topic):
    """A member of the group that has both partitions."""
    assigned = []
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "the-client"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def committed(run_json, group):
    (described,) = run_json("groups", "describe", group)
    return {p["partition"]: p["committed"] for p in described["partitions"]}


@pytest.mark.promise(
    "group commands",
    "`penstock groups list` and `penstock groups describe` show all types, members, assignments and offsets",
)
def test_groups_are_listed_by_state_and_type(run, run_json, group, topic, commit):
    commit(topic, {0: 1})
    entry = {"group": group, "type": "classic", "state": "Empty", "protocol": ""}
    assert entry in run_json("groups", "list")
    assert entry in run_json("groups", "list", "--state", "empty", "--type", "classic")
    assert entry not in run_json("groups", "list", "--state", "stable")
    assert entry not in run_json("groups", "list", "--type", "share")
    assert group in run("groups", "list").stdout


@pytest.mark.promise(
    "group commands", "`penstock groups lag` shows the lag in records and seconds, once or repeatedly"
)
def test_lag_is_told_in_records_and_in_seconds(run, run_json, group, topic, commit):
    commit(topic, {0: 2, 1: 5})
    (described,) = run_json("groups", "describe", group)
    behind, caught_up = described["partitions"]
    assert (behind["committed"], behind["end"], behind["lag"]) == (2, 5, 3)
    # The record at offset 2 was made two seconds after the first.
    assert behind["lag_seconds"] >= (PAST_MS - 2000) / 1000
    assert (caught_up["lag"], caught_up["lag_seconds"]) == (0, 0.0)
    assert (described["lag"], described["lag_seconds"]) == (3, behind["lag_seconds"])
    assert group in run("groups", "describe", group).stdout

    (line,) = run_json("groups", "lag", group)
    assert (line["topic"], line["partitions"], line["lag"]) == (topic, 2, 3)
    assert line["lag_seconds"] >= behind["lag_seconds"]
    assert any(line["group"] == group for line in run_json("groups", "lag"))


@pytest.mark.promise(
    "group commands", "`penstock groups lag` shows the lag in records and seconds, once or repeatedly"
)
def test_only_a_transaction_marker_is_left_is_no_lag_in_seconds(broker, run_json, group, topic, commit):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": group})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.commit_transaction()
    commit(topic, {0: 6})
    (line,) = run_json("groups", "lag", group)
    assert (line["lag"], line["lag_seconds"]) == (1, 0.0)


def test_several_groups_at_several_places_of_a_partition(run_json, broker, topic):
    names = [f"g-{uuid.uuid4().hex[:12]}" for _ in range(3)]
    for offset, name in enumerate(names):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()
    lines = run_json("groups", "lag", *names)
    assert [line["lag"] for line in lines] == [5, 4, 3]
    assert lines[0]["lag_seconds"] > lines[1]["lag_seconds"] > lines[2]["lag_seconds"]


@pytest.mark.promise(
    "group commands",
    "`penstock groups list` and `penstock groups describe` show all types, members, assignments and offsets",
)
def test_members_are_told_with_their_client_host_and_assignment(run, run_json, group, topic, member):
    (described,) = run_json("groups", "describe", group)
    (found,) = described["members"]
    assert (described["state"], described["type"]) == ("Stable", "classic")
    assert (found["client_id"], found["host"]) == ("the-client", "127.0.0.1")
    assert found["assignments"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert [p["member"] for p in described["partitions"]] == [found["member"]] * 2
    assert [p["lag"] for p in described["partitions"]] == [None, None]  # nothing is committed yet
    assert "the-client" in run("groups", "describe", group).stdout


def test_the_offsets_of_a_topic_that_is_gone_have_no_end(broker, run, run_json, group, topic, commit):
    commit(topic, {0: 2})
    broker.delete_topic(topic)
    described = run_json("groups", "describe", group)
    # The broker may have dropped the offsets together with the topic.
    assert all(p["end"] is None and p["lag"] is None for p in described[0]["partitions"])


@pytest.mark.promise(
    "group commands",
    "`penstock groups reset` shows the changes, applies them only with `--execute`, and refuses while "
    "the group has members",
)
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 5, 1: 5}),
        (("--to-offset", "4"), {0: 4, 1: 4}),
        (("--shift", "-1"), {0: 1, 1: 2}),
        (("--shift", "100"), {0: 5, 1: 5}),
        (("--to-time", "-97500ms"), {0: 3, 1: 3}),
    ],
)
def test_offsets_are_previewed_and_then_moved(option, expected, run, run_json, group, topic, commit):
    commit(topic, {0: 2, 1: 3})
    preview = run_json("groups", "reset", group, *option)
    assert not preview["executed"]
    assert {p["partition"]: p["committed"] for p in preview["partitions"]} == {0: 2, 1: 3}
    assert "--execute" in run("groups", "reset", group, *option).stderr
    assert committed(run_json, group) == {0: 2, 1: 3}

    done = run_json("groups", "reset", group, *option, "--execute")
    moved = {p["partition"]: p["new"] for p in done["partitions"]}
    if option[0] == "--to-time":  # the first record after a moment between two of them
        assert set(moved.values()) <= {3, 4}
    else:
        assert moved == expected
    assert done["executed"] and committed(run_json, group) == moved


@pytest.mark.promise(
    "group commands",
    "`penstock groups reset` shows the changes, applies them only with `--execute`, and refuses while "
    "the group has members",
)
def test_a_reset_can_choose_partitions_and_make_a_group(run_json, group, topic):
    run_json("groups", "reset", group, "--to-latest", "--topic", topic, "--partition", "1", "--execute")
    assert committed(run_json, group) == {1: 5}


@pytest.mark.promise(
    "group commands",
    "`penstock groups reset` shows the changes, applies them only with `--execute`, and refuses while "
    "the group has members",
)
def test_a_reset_is_refused_while_there_are_members(run, run_json, group, topic, member):
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    refused = run("groups", "reset", group, "--to-earliest", "--execute", expect=1)
    assert "1 active member (the-client at 127.0.0.1)" in refused.stderr
    assert "rejected now" in run("groups", "reset", group, "--to-earliest").stderr
    assert committed(run_json, group)[0] == 3


@pytest.mark.promise(
    "group commands",
    "`penstock groups reset` shows the changes, applies them only with `--execute`, and refuses while "
    "the group has members",
)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--shift", "1", "--topic", "TOPIC"), "has no committed offset to shift from"),
        (("--to-offset", "77", "--topic", "TOPIC"), "offset 77 is out of range"),
        (("--to-latest", "--topic", "TOPIC", "--partition", "7"), "has no partition 7"),
        (("--to-latest", "--topic", "no-such-topic"), "no topic 'no-such-topic'"),
        (("--to-latest",), "no group"),
    ],
)
def test_a_reset_that_cannot_be_says_why(arguments, says, run, group, topic):
    words = [topic if word == "TOPIC" else word for word in arguments]
    assert says in run("groups", "reset", group, *words, expect=1).stderr


@pytest.mark.promise(
    "group commands", "`penstock groups delete` deletes empty groups; one failure does not stop the others"
)
def test_groups_are_deleted_and_one_failure_does_not_stop_the_others(run, run_json, group, topic, commit):
    commit(topic, {0: 1})
    result = run("groups", "delete", group, "no-such-group", expect=1)
    assert result.stdout == f"{group}: deleted\n"
    assert "no group 'no-such-group'" in result.stderr
    assert run_json("groups", "delete", group, "--if-exists") == [{"name": group, "result": "absent"}]
    assert "no group" in run("groups", "describe", group, expect=1).stderr


@pytest.mark.promise(
    "group commands", "`penstock groups delete` deletes empty groups; one failure does not stop the others"
)
def test_a_group_with_members_is_not_deleted(run, group, member):
    assert "has active members" in run("groups", "delete", group, expect=1).stderr


@pytest.mark.promise("group commands", "Failures print one clear line with a hint")
def test_a_name_that_is_nearly_right_gets_a_hint(run, group, topic, commit):
    commit(topic, {0: 1})
    assert f"Did you mean '{group}'?" in run("groups", "describe", group + "x", expect=1).stderr


@pytest.mark.promise(
    "group commands", "`penstock groups lag` shows the lag in records and seconds, once or repeatedly"
)
def test_lag_is_watched_until_interrupted(broker, group, topic, commit):
    commit(topic, {0: 2})
    words = ["groups", "lag", group, "--watch", "--interval", "0.1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words],
        env=os.environ | {"PENSTOCK_BOOTSTRAP": broker.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        first = json.loads(process.stdout.readline())
        commit(topic, {0: 4})
        while (later := json.loads(process.stdout.readline())) and later[0]["lag"] != 1:
            assert later[0]["lag"] == first[0]["lag"] == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.promise(
    "group commands",
    "`penstock consume --group` commits the offsets of the records that it printed, and continues there",
)
def test_consume_as_a_member_goes_on_where_the_group_is(run, run_json, group, topic):
    first = run("consume", topic, "--group", group, "--max", "3").stdout.split()
    assert len(first) == 3
    assert sum(offset or 0 for offset in committed(run_json, group).values()) == 3
    rest = run("consume", topic, "--group", group).stdout.split()
    assert sorted(first + rest) == sorted("01234" * 2)
    assert run("consume", topic, "--group", group).stdout == ""
    (line,) = run_json("groups", "lag", group)
    assert (line["lag"], line["members"]) == (0, 0)


@pytest.mark.promise(
    "group commands",
    "`penstock consume --group` commits the offsets of the records that it printed, and continues there",
)
def test_consume_as_a_member_starts_where_it_is_told_when_the_group_is_new(run, group, topic):
    assert run("consume", topic, "--group", group, "--from", "latest").stdout == ""


@pytest.mark.parametrize("words", [("--partition", "0"), ("--from", "3"), ("--from", "-2")])
def test_a_member_of_a_group_does_not_choose_its_place(words, run, group, topic):
    run("consume", topic, "--group", group, *words, expect=2)


@pytest.mark.promise(
    "group commands",
    "`penstock groups list` and `penstock groups describe` show all types, members, assignments and offsets",
)
def test_a_group_of_the_consumer_protocol_is_shown_and_reset_like_any_other(
    broker, run, run_json, group, topic
):
    assigned = []
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": "consumer"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    while len(assigned) < 2:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 1, 4)], asynchronous=False)
    (described,) = run_json("groups", "describe", group)
    assert described["type"] == "consumer" and described["lag"] == 1
    assert len(described["members"][0]["assignments"]) == 2
    assert any(each["group"] == group for each in run_json("groups", "list", "--type", "consumer"))
    run("groups", "reset", group, "--to-earliest", "--execute", expect=1)
    consumer.close()
    run("groups", "reset", group, "--to-earliest", "--execute")
    assert committed(run_json, group) == {1: 0}


@pytest.fixture
def share_member(broker, group, topic):
    """A member of a share group; leaves when called."""
    member = str(uuid.uuid4())
    with WireClient(broker.port, client_id="a-worker") as wire:
        find = Message(key_type=0, coordinator_keys=[group])
        while wire.request(ApiKey.FIND_COORDINATOR, 6, find).coordinators[0].error_code:
            pass

        def beat(epoch, topics=None):
            request = Message(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                rack_id=None,
                subscribed_topic_names=topics,
            )
            answer = wire.request(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)
            assert answer.error_code == 0, answer

        beat(0, [topic])
        yield lambda: beat(-1)


@pytest.mark.promise(
    "group commands",
    "`penstock groups list` and `penstock groups describe` show all types, members, assignments and offsets",
)
def test_a_share_group_is_shown_and_deleted_but_not_reset(run, run_json, group, topic, share_member):
    assert any(each["group"] == group for each in run_json("groups", "list", "--type", "share"))
    (described,) = run_json("groups", "describe", group)
    assert described["type"] == "share"
    assert described["members"][0]["client_id"] == "a-worker"
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    assert "share group" in run("groups", "reset", group, "--to-latest", expect=1).stderr
    run("groups", "delete", group, expect=1)
    share_member()
    run("groups", "delete", group)


@pytest.fixture
def raw_member(broker):
    """A stable group of one member whose subscription and assignment are these bytes."""

    def join(name, protocol_type, assignment):
        wire = WireClient(broker.port)
        fields = {
            "group_id": name,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "group_instance_id": None,
            "protocol_type": protocol_type,
            "protocols": [Message(name="p", metadata=b"\xff\xff\xff")],
            "reason": None,
        }
        wire.request(ApiKey.FIND_COORDINATOR, 4, Message(key_type=0, coordinator_keys=[name]))
        member_id = wire.request(ApiKey.JOIN_GROUP, 9, Message(member_id="", **fields)).member_id
        joined = wire.request(ApiKey.JOIN_GROUP, 9, Message(member_id=member_id, **fields))
        assert joined.error_code == 0
        given = [Message(member_id=member_id, assignment=assignment)]
        sync = Message(
            group_id=name, generation_id=joined.generation_id, member_id=member_id, group_instance_id=None,
            protocol_type=protocol_type, protocol_name="p", assignments=given,
        )  # fmt: skip
        assert wire.request(ApiKey.SYNC_GROUP, 5, sync).error_code == 0
        return member_id

    return join


@pytest.mark.parametrize(("protocol_type", "raw"), [("consumer", b"\0\1\x7f\xff\xff\xff"), ("connect", b"x")])
def test_a_group_whose_assignment_cannot_be_read_is_shown_and_does_not_hide_the_others(
    protocol_type, raw, run, run_json, group, topic, commit, raw_member
):
    commit(topic, {0: 2})
    other = f"{group}-raw"
    member_id = raw_member(other, protocol_type, raw)
    found = {each["group"]: each for each in run_json("groups", "describe", group, other)}
    assert found[group]["lag"] == 3
    assert (found[other]["type"], found[other]["state"]) == ("classic", "Stable")
    assert [(m["member"], m["assignments"]) for m in found[other]["members"]] == [(member_id, None)]
    assert "(cannot be read)" in run("groups", "describe", other).stdout
    run("groups", "lag", other)
    assert {"group": group, "lag": 3}.items() <= next(
        row for row in run_json("groups", "lag") if row["group"] == group
    ).items()
