"""Translates settings from the names of Kafka's Java clients to those of librdkafka.

Programs for Spark's own Kafka sink, Connect configurations and client files use the names of Kafka's Java
clients (`buffer.memory`, `sasl.jaas.config`), but librdkafka runs here. Most names are the same; different
ones are translated, those without a counterpart are rejected with the reason, and librdkafka's own names are
passed on. A name that neither knows is rejected when the producer is created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from penstock.client.errors import BadClientSetting
from penstock.client.partitioning import KEY_PARTITIONER

Translated = dict[str, str]

_RENAMED = {
    "delivery.timeout.ms": "message.timeout.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_REFUSED = {
    "key.serializer": "keys are written as they are: use DataFrame operations to serialize the column",
    "value.serializer": "values are written as they are: use DataFrame operations to serialize the column",
    "interceptor.classes": "interceptors are Java classes, and could change what is written",
    "metric.reporters": "reporters are Java classes",
    "security.providers": "providers are Java classes",
    "ssl.engine.factory.class": "it is a Java class",
    "sasl.login.class": "it is a Java class",
    "transactional.id": "each task has its own; the option transactionalIdPrefix sets how it begins",
    "enable.gapless.guarantee": "transactions say it already",
    "delivery.report.only.error": "the sink sets it",
    "group.id": "it belongs to readers",
}

# How the Java client does something for which librdkafka has one way that is as good.
_WITHOUT_EFFECT = frozenset({
    "auto.include.jmx.reporter", "enable.metrics.push", "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.max.idle.ms", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "ssl.enabled.protocols", "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
    "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
})  # fmt: skip

_OWN = frozenset({"max.block.ms", "default.api.timeout.ms", "buffer.memory"})
"""Settings that the sink itself implements: how long to wait for a cluster, how much to buffer."""

_PARTITIONERS = {
    "org.apache.kafka.clients.producer.internals.defaultpartitioner": KEY_PARTITIONER,
    "org.apache.kafka.clients.producer.uniformstickypartitioner": "random",
    "org.apache.kafka.clients.producer.roundrobinpartitioner": "random",
}
_LOGIN_MODULES = ("plain.PlainLoginModule", "scram.ScramLoginModule")
_TOKEN_MODULES = ("OAuthBearerLoginModule", "IAMLoginModule")
_TOKEN_HANDLERS = (
    "OAuthBearerLoginCallbackHandler",
    "IAMClientCallbackHandler",
)
"""Settings that Java's clients need for OAUTHBEARER and AWS MSK IAM, and that are built in here."""
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_PEM_HELP = (
    "librdkafka reads PEM, and PKCS12 as a key store: convert it, for example with"
    " `keytool -importkeystore -srckeystore X -destkeystore X.p12 -deststoretype PKCS12` and"
    " `openssl pkcs12 -in X.p12 -nodes -out X.pem`"
)


def translate(settings: Mapping[str, str]) -> Translated:
    """From Java's names to librdkafka's. Raises BadClientSetting if librdkafka has no equivalent."""
    out: Translated = {}
    for name, value in settings.items():
        if name in _REFUSED:
            raise BadClientSetting(f"kafka.{name} is not supported: {_REFUSED[name]}")
        special = _SPECIAL.get(name)
        if special is not None:
            special(value, settings, out)
        elif name not in _WITHOUT_EFFECT and name not in _OWN:
            out[_RENAMED.get(name, name)] = value
    return out


def _jaas(value: str, settings: Mapping[str, str], out: Translated) -> None:
    parsed = _JAAS.fullmatch(value)
    if parsed is not None and parsed[1].endswith(_TOKEN_MODULES):
        out["sasl.jaas.config"] = value  # for `penstock.client.librdkafka`, which gets the tokens
        return
    if parsed is None or not parsed[1].endswith(_LOGIN_MODULES):
        raise BadClientSetting(
            "kafka.sasl.jaas.config: give PlainLoginModule or ScramLoginModule with username and password,"
            " such as 'org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="u" password="p";\''
        )
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or match[4] or "")
        for match in _JAAS_OPTION.finditer(parsed[2])
    }
    if not {"username", "password"} <= options.keys():
        raise BadClientSetting("kafka.sasl.jaas.config has no username or no password")
    if "sasl.mechanism" not in settings and "sasl.mechanisms" not in settings:
        raise BadClientSetting(
            "kafka.sasl.jaas.config needs kafka.sasl.mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    out["sasl.username"], out["sasl.password"] = options["username"], options["password"]


def _store_type(which: str, allowed: tuple[str, ...]) -> Callable[[str, Mapping[str, str], Translated], None]:
    def check(value: str, settings: Mapping[str, str], out: Translated) -> None:
        if value.strip().upper() not in allowed:
            raise BadClientSetting(f"kafka.ssl.{which}.type={value}: {_PEM_HELP}")

    return check


def _trust_store(value: str, settings: Mapping[str, str], out: Translated) -> None:
    _refuse_jks(value, "truststore", settings)
    out["ssl.ca.location"] = value


def _key_store(value: str, settings: Mapping[str, str], out: Translated) -> None:
    kind = settings.get("ssl.keystore.type", "").upper()
    if kind == "PKCS12" or (not kind and value.endswith((".p12", ".pfx"))):
        out["ssl.keystore.location"] = value
        return
    _refuse_jks(value, "keystore", settings)
    # One file with the key and its certificates, as in KIP-651.
    out["ssl.certificate.location"] = out["ssl.key.location"] = value


def _refuse_jks(value: str, which: str, settings: Mapping[str, str]) -> None:
    if not settings.get(f"ssl.{which}.type") and value.endswith((".jks", ".p12", ".pfx")):
        raise BadClientSetting(f"kafka.ssl.{which}.location={value}: {_PEM_HELP}")


def _host_check(value: str, settings: Mapping[str, str], out: Translated) -> None:
    # Java disables the check with an empty text, librdkafka with a word.
    out["ssl.endpoint.identification.algorithm"] = value.strip() or "none"


def _partitioner(value: str, settings: Mapping[str, str], out: Translated) -> None:
    known = _PARTITIONERS.get(value.strip().lower())
    if known is None:
        raise BadClientSetting(
            f"kafka.partitioner.class={value} is a Java class: set the column partition instead, or"
            " kafka.partitioner to one of librdkafka's"
        )
    out["partitioner"] = known


def _callback_handler(name: str) -> Callable[[str, Mapping[str, str], Translated], None]:
    def check(value: str, settings: Mapping[str, str], out: Translated) -> None:
        if not value.strip().endswith(_TOKEN_HANDLERS):
            raise BadClientSetting(f"kafka.{name} is not supported: it is a Java class")

    return check


def _ignore(value: str, settings: Mapping[str, str], out: Translated) -> None:
    """Covered by another setting."""


_SPECIAL: dict[str, Callable[[str, Mapping[str, str], Translated], None]] = {
    "sasl.jaas.config": _jaas,
    "ssl.truststore.type": _store_type("truststore", ("PEM",)),
    "ssl.keystore.type": _store_type("keystore", ("PEM", "PKCS12")),
    "ssl.truststore.location": _trust_store,
    "ssl.truststore.password": _ignore,  # PEM certificates have none
    "ssl.keystore.location": _key_store,
    "ssl.endpoint.identification.algorithm": _host_check,
    "partitioner.class": _partitioner,
    "sasl.login.callback.handler.class": _callback_handler("sasl.login.callback.handler.class"),
    "sasl.client.callback.handler.class": _callback_handler("sasl.client.callback.handler.class"),
}
