"""`penstock acls`, `quotas` and `audit` against a real broker: what it denies, allows and records."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from tests.doc_blocks import commands
from tests.doc_shell import Shell

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "penstock.audit.enable": "true",
}


@pytest.fixture(scope="module")
def broker():
    with PenstockBroker(SETTINGS) as process:
        yield process


@pytest.fixture
def run(broker):
    def run(*arguments, expect=0):
        result = CliRunner().invoke(cli, arguments, env={"PENSTOCK_BOOTSTRAP": broker.bootstrap})
        assert result.exit_code == expect, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def run_json(run):
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.mark.promise(
    "access",
    "`penstock acls`, `penstock quotas`, `kafka-acls` and `kafka-configs` set, list and remove ACLs and "
    "quotas",
)
def test_what_is_denied_is_listed_and_refused_and_allowed_again_when_it_is_deleted(
    broker, run, run_json
) -> None:
    broker.create_topic("orders")
    broker.create_topic("other")
    added = run_json("acls", "deny", "User:ANONYMOUS", "write", "read", "--topic", "ord", "--prefixed")
    assert [(one["operation"], one["pattern"]) for one in added] == [
        ("read", "prefixed"), ("write", "prefixed")
    ]  # fmt: skip
    assert run_json("acls", "list") == added
    assert run_json("acls", "list", "--topic", "orders", "--matching") == added
    assert run_json("acls", "list", "--topic", "orders") == []
    assert "User:ANONYMOUS" in run("acls", "list").stdout

    assert written(broker, "other") is None
    assert written(broker, "orders") == KafkaError.TOPIC_AUTHORIZATION_FAILED

    assert run_json("acls", "delete", "--principal", "User:ANONYMOUS") == added
    assert "No ACLs" in run("acls", "list").stderr
    assert written(broker, "orders") is None


def written(broker, topic: str) -> int | None:
    """The error of a record that is produced to the topic, or None."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    try:
        producer.produce(topic, b"v", on_delivery=lambda error, message: errors.append(error))
    except KafkaException as raised:  # the client has heard of it before the record is queued
        errors.append(raised.args[0])
    assert producer.flush(30) == 0
    return errors[0].code() if errors[0] else None


def test_mistakes_are_named(run) -> None:
    assert "write User:alice" in run("acls", "allow", "alice", "read", "--topic", "t", expect=2).stderr
    assert "name a resource" in run("acls", "allow", "User:alice", "read", expect=2).stderr
    assert "name what to delete" in run("acls", "delete", expect=2).stderr
    assert "is not a number" in run("quotas", "set", "--user", "a", "producer_byte_rate=x", expect=2).stderr
    assert "name whom" in run("quotas", "set", "producer_byte_rate=1", expect=2).stderr
    assert "producer_rate" in run("quotas", "set", "--user", "a", "producer_rate=1", expect=1).stderr


def test_without_an_authorizer_the_setting_that_is_missing_is_named() -> None:
    with PenstockBroker() as plain:
        result = CliRunner().invoke(cli, ["acls", "list"], env={"PENSTOCK_BOOTSTRAP": plain.bootstrap})
    assert result.exit_code == 1
    assert "authorizer.class.name" in result.stderr


@pytest.mark.promise(
    "access",
    "`penstock acls`, `penstock quotas`, `kafka-acls` and `kafka-configs` set, list and remove ACLs and "
    "quotas",
)
def test_quotas_are_set_listed_and_removed(run, run_json) -> None:
    run("quotas", "set", "--user", "alice", "producer_byte_rate=1048576", "request_percentage=12.5")
    run("quotas", "set", "--user", "<default>", "--client-id", "c", "consumer_byte_rate=1000")
    run("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    assert {(one["user"], one["client-id"], one["ip"], one["quota"], one["value"]) for one in run_json(
        "quotas", "list"
    )} == {
        ("alice", "", "", "producer_byte_rate", 1048576.0),
        ("alice", "", "", "request_percentage", 12.5),
        ("<default>", "c", "", "consumer_byte_rate", 1000.0),
        ("", "", "10.0.0.1", "connection_creation_rate", 5.0),
    }  # fmt: skip
    run("quotas", "unset", "--user", "alice", "producer_byte_rate", "request_percentage")
    run("quotas", "unset", "--user", "<default>", "--client-id", "c", "consumer_byte_rate")
    run("quotas", "unset", "--ip", "10.0.0.1", "connection_creation_rate")
    assert "No quotas" in run("quotas", "list").stderr


@pytest.mark.promise("access", "Only brokers write the audit topic; `penstock audit` reads it")
def test_audit_shows_who_was_denied_what_and_who_changed_what(broker, run) -> None:
    def audit(*options: str) -> list[dict]:
        return [json.loads(line) for line in run("audit", *options, "--json").stdout.splitlines()]

    broker.create_topic("audited")
    run("acls", "deny", "User:ANONYMOUS", "write", "--topic", "audited")
    run("acls", "allow", "User:ANONYMOUS", "describe", "--topic", "audited")
    assert written(broker, "audited") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    run("acls", "delete", "--principal", "User:ANONYMOUS")

    def denied() -> list[dict]:
        return [one for one in audit("--type", "denied") if one["resource"] == "audited"]

    end = time.monotonic() + 60
    while not denied() and time.monotonic() < end:  # it is written beside the request
        pass
    (first, *_) = denied()
    assert (first["api"], first["operation"], first["error"]) == (
        "Produce", "Write", "TOPIC_AUTHORIZATION_FAILED"
    )  # fmt: skip
    assert first["host"] == "127.0.0.1" and first["client_id"] and not first["allowed"]
    changes = [one["api"] for one in audit("--type", "admin", "--principal", "User:ANONYMOUS")]
    assert {"CreateTopics", "CreateAcls"} <= set(changes)
    assert audit("--principal", "User:nobody") == []
    assert len(audit("--max", "2")) == 2
    shown = run("audit", "--type", "denied").stdout
    assert "Produce Write Topic:audited TOPIC_AUTHORIZATION_FAILED" in shown


@pytest.mark.promise("access", "Only brokers write the audit topic; `penstock audit` reads it")
def test_audit_follows(broker) -> None:
    command = [sys.executable, "-m", "penstock", "audit", "--follow", "--type", "admin", "--json"]
    with subprocess.Popen([*command, "-b", broker.bootstrap], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            # It begins at the end that it finds: topics are made until it shows one.
            seen: list[str] = []
            reader = threading.Thread(target=lambda: seen.append(process.stdout.readline()), daemon=True)
            reader.start()
            for number in range(600):
                broker.create_topic(f"followed-{number}")
                reader.join(0.1)
                if not reader.is_alive():
                    break
            assert json.loads(seen[0])["resource"].startswith("followed-")
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130


def test_audit_names_the_setting_where_there_is_no_topic() -> None:
    with PenstockBroker() as plain:
        result = CliRunner().invoke(cli, ["audit"], env={"PENSTOCK_BOOTSTRAP": plain.bootstrap})
    assert result.exit_code == 1
    assert "penstock.audit.enable=true" in result.stderr


@pytest.mark.promise("docs", "The commands of security.md for the audit topic run as printed")
def test_the_commands_of_the_page_show_what_is_denied(broker, run, tmp_path) -> None:
    denied, follow = commands("docs/security.md", "Audit")
    shell = Shell(tmp_path, {"PENSTOCK_BOOTSTRAP": broker.bootstrap})
    broker.create_topic("page-of-security")
    run("acls", "deny", "User:ANONYMOUS", "write", "--topic", "page-of-security")
    try:
        with shell.running(follow) as following:
            # It may not follow yet when the first one is denied; those after it are counted in one record.
            following.wait_for(
                "a denial is shown",
                lambda: written(broker, "page-of-security") and "page-of-security" in following.output(),
            )
        assert "Topic:page-of-security TOPIC_AUTHORIZATION_FAILED" in shell.run(denied)
    finally:
        run("acls", "delete", "--topic", "page-of-security")
