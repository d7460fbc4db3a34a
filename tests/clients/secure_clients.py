"""Three real clients on a secured listener, each with its own names for the same settings."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAIT_MS = 15_000


class LoginRefused(Exception):
    """The client gave up because of TLS or of its credentials."""


@dataclass(frozen=True)
class Login:
    """How a client connects. `own` is a PEM file with its certificate and key."""

    protocol: str
    ca: Path | None = None
    own: Path | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token: Callable[[], str] | None = None

    def context(self) -> ssl.SSLContext | None:
        if not self.protocol.endswith("SSL"):
            return None
        made = ssl.create_default_context(cafile=self.ca)
        if self.own is not None:
            made.load_cert_chain(self.own)
        return made


def confluent_config(bootstrap: str, login: Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": login.protocol}
    if login.ca is not None:
        config["ssl.ca.location"] = str(login.ca)
    if login.own is not None:
        config |= {"ssl.certificate.location": str(login.own), "ssl.key.location": str(login.own)}
    if login.mechanism is not None:
        config["sasl.mechanism"] = login.mechanism
        if login.token is not None:
            token = login.token
            config["oauth_cb"] = lambda _: (token(), 4102444800.0)
        else:
            config |= {"sasl.username": login.user, "sasl.password": login.password}
    return config


def confluent(bootstrap: str, topic: str, login: Login) -> list[bytes]:
    """Writes a record and reads all that there are, as do the others."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    config = confluent_config(bootstrap, login)
    refused: list[str] = []

    def failed(error: Any) -> None:
        if error.name() in ("_AUTHENTICATION", "_SSL", "_ALL_BROKERS_DOWN"):
            refused.append(error.str())

    producer = Producer({**config, "message.timeout.ms": WAIT_MS, "error_cb": failed})
    delivered: list[Any] = []
    producer.produce(topic, b"confluent", on_delivery=lambda error, _: delivered.append(error))
    while not delivered and not refused:
        producer.poll(0.2)
    if refused or delivered[0] is not None:
        producer.purge()
        producer.flush(1)
        raise LoginRefused(refused[0] if refused else str(delivered[0]))
    consumer = Consumer({**config, "group.id": "secure", "enable.auto.commit": False})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_MS / 1000)
        consumer.assign([partition])
        values: list[bytes] = []
        while len(values) < end:
            message = consumer.poll(1)
            if message is not None:
                if message.error():
                    raise KafkaException(message.error())
                values.append(message.value())
        return values
    finally:
        consumer.close()


def kafka_python_config(bootstrap: str, login: Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": login.protocol}
    if context := login.context():
        config["ssl_context"] = context
    if login.mechanism is not None:
        config["sasl_mechanism"] = login.mechanism
        if login.token is not None:
            config["sasl_oauth_token_provider"] = _provider(login.token)
        else:
            config |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return config


def kafka_python(bootstrap: str, topic: str, login: Login) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

    config = kafka_python_config(bootstrap, login)
    try:
        producer = KafkaProducer(**config, max_block_ms=3_000, bootstrap_timeout_ms=5_000)
        try:
            producer.send(topic, b"kafka-python", partition=0).get(WAIT_MS / 1000)
        finally:
            producer.close(1)
    except (KafkaError, OSError) as error:
        raise LoginRefused(str(error)) from error
    consumer = KafkaConsumer(**config, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    while len(values) < end:
        for records in consumer.poll(500).values():
            values += [record.value for record in records]
    consumer.close()
    return values


def _provider(token: Callable[[], str]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    return Provider()


def aiokafka_config(bootstrap: str, login: Login) -> dict[str, Any]:
    from aiokafka.abc import AbstractTokenProvider

    config: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": login.protocol}
    if context := login.context():
        config["ssl_context"] = context
    if login.mechanism is not None:
        config["sasl_mechanism"] = login.mechanism
        if login.token is not None:
            given = login.token

            class Provider(AbstractTokenProvider):  # type: ignore[misc]
                async def token(self) -> str:
                    return given()

            config["sasl_oauth_token_provider"] = Provider()
        else:
            config |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return config


def aiokafka(bootstrap: str, topic: str, login: Login) -> list[bytes]:
    return asyncio.run(_aiokafka(bootstrap, topic, login))


async def _aiokafka(bootstrap: str, topic: str, login: Login) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError

    config = aiokafka_config(bootstrap, login)
    producer = AIOKafkaProducer(**config, request_timeout_ms=WAIT_MS)
    try:
        await producer.start()
        await producer.send_and_wait(topic, b"aiokafka", partition=0)
    except (KafkaError, OSError) as error:
        raise LoginRefused(str(error)) from error
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(**config, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while len(values) < end:
            for records in (await consumer.getmany(partition, timeout_ms=500)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


SECURE_CLIENTS: dict[str, Callable[[str, str, Login], list[bytes]]] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
