"""What security costs: TLS, ACLs, logins; and that a byte-rate quota is held and costs others nothing."""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from statistics import median
from typing import Any

from bench import tls, wire
from bench.process import BrokerProcess, broker
from bench.report import Report, Result
from bench.requests import one_record_rate
from penstock.client.connection import Connection
from penstock.client.security import Security
from penstock.client.settings import ClientSettings
from penstock.credentials import scram
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
QUOTA = 4 << 20
_ALLOW, _LITERAL, _TOPIC, _ALL = 3, 3, 2, 2
_WINDOWS_S = 11


def measure(report: Report, *, quick: bool) -> None:
    tls.measure(report, records=100_000 if quick else 400_000, rounds=3 if quick else 7)
    _acls(report, seconds=1 if quick else 2, rounds=3 if quick else 9)
    _logins(report, seconds=2 if quick else 5)
    _quotas(report, rounds=2 if quick else 4)


# ACLs


def _acls(report: Report, *, seconds: float, rounds: int) -> None:
    """Two brokers in turns. One has an ACL for the topic; whoever connects is User:ANONYMOUS.

    The rate is what the broker's processor allows, so its time for a request says what ACLs take of it.
    """
    settings = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    with broker() as without, broker(settings=settings) as with_acls:
        for process in (without, with_acls):
            wire.make_topic(process.port, "small")
        _allow(with_acls, "small")
        for number in range(rounds + 1):  # the first warms up
            for name, process in (("without", without), ("with", with_acls)):
                run = one_record_rate(process, "small", connections=8, partitions=1, seconds=seconds)
                if number:
                    found[name].append(run)
    rate, cpu = ({name: median(run[at] for run in runs) for name, runs in found.items()} for at in (0, 1))
    cost = (1 - cpu["without"] / cpu["with"]) * 100
    report.add(
        Result("one-record produce with ACLs", rate["with"], "/s", note=f"{rate['without']:,.0f} without"),
        Result(
            "one-record produce: what ACLs take of the rate",
            cost,
            "%",
            at_most=5.0,
            note=f"{cpu['with']:.1f} and {cpu['without']:.1f} us of the broker's processor for a request",
        ),
    )


def _allow(process: BrokerProcess, topic: str) -> None:
    creation = Message(
        resource_type=_TOPIC,
        resource_name=topic,
        resource_pattern_type=_LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=_ALL,
        permission_type=_ALLOW,
    )
    with WireClient(process.port) as client:
        answer = client.request(ApiKey.CREATE_ACLS, 3, Message(creations=[creation]))
        if answer.results[0].error_code:
            raise RuntimeError(f"no ACL: error {answer.results[0].error_code}")


# Logins


def _logins(report: Report, *, seconds: float) -> None:
    """Connections that log in with SCRAM-SHA-256, one after the other, by four threads."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
        ),
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }
    # The client remembers what it derives from its password, as it may (RFC 5802): the broker is measured.
    plain = scram.salted_password
    scram.salted_password = lru_cache(plain)
    try:
        with broker(settings=settings) as process:
            login = Security("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username="u", password="p")
            client = ClientSettings((("127.0.0.1", process.port),), security=login)
            done: list[int] = []
            end = time.perf_counter() + seconds

            def work() -> None:
                count = 0
                while time.perf_counter() < end:
                    Connection("127.0.0.1", process.port, client).close()
                    count += 1
                done.append(count)

            start, before = time.perf_counter(), process.cpu_seconds()
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took, cpu = time.perf_counter() - start, process.cpu_seconds() - before
    finally:
        scram.salted_password = plain
    report.add(
        Result("SCRAM-SHA-256 logins", sum(done) / took, "/s", at_least=200),
        Result("broker CPU for a login", cpu / max(1, sum(done)) * 1000, "ms"),
    )


# Quotas


def _quotas(report: Report, *, rounds: int) -> None:
    """Two clients of one id under one quota produce as much as they can; a third, of another id, has none."""
    data = wire.batch(60, 1000).data
    with broker(settings={"quota.window.num": "11"}) as process:
        wire.make_topic(process.port, "limited", 2)
        wire.make_topic(process.port, "free")
        alone = _latency(process, 2.0)
        entity = [Message(entity_type="client-id", entity_name="shared")]
        ops = [Message(key="producer_byte_rate", value=float(QUOTA), remove=False)]
        with WireClient(process.port) as client:
            change = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
            answer = client.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, change)
            if answer.entries[0].error_code:
                raise RuntimeError(f"no quota: error {answer.entries[0].error_code}")
        sent = [0, 0]
        ended = threading.Event()
        threads = [
            threading.Thread(target=_produce, args=(process, number, data, sent, ended)) for number in (0, 1)
        ]
        for thread in threads:
            thread.start()
        # As Kafka counts: the mean of 11 windows of a second, of which the first may have it all. So the rate
        # is that of whole rounds of windows.
        start = time.perf_counter()
        beside = _latency(process, rounds * _WINDOWS_S)
        took = time.perf_counter() - start
        share = sum(sent) / took / QUOTA
        ended.set()
        for thread in threads:
            thread.join()
    report.add(
        Result("two clients under one byte rate: share of it", share, "", at_least=0.9, at_most=1.1),
        Result("a third client meanwhile: latency p50", beside[0], "ms", note=f"{alone[0]:.2f} alone"),
        Result("a third client meanwhile: latency p99", beside[1], "ms", note=f"{alone[1]:.2f} alone"),
    )


def _produce(process: BrokerProcess, number: int, data: bytes, sent: list[int], ended: Any) -> None:
    request = wire.produce_request("limited", number, data, client_id=b"shared")
    with wire.connect(process.port) as connection:
        connection.settimeout(60)
        while not ended.is_set():
            wire.round_trip(connection, request)
            sent[number] += len(request) - 4


def _latency(process: BrokerProcess, seconds: float) -> tuple[float, float]:
    request = wire.produce_request("free", 0, wire.batch(1, 100).data)
    times = []
    end = time.perf_counter() + seconds
    with wire.connect(process.port) as connection:
        wire.round_trip(connection, request)
        while (start := time.perf_counter()) < end:
            wire.round_trip(connection, request)
            times.append((time.perf_counter() - start) * 1000)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]
