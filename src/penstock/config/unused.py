"""The broker settings of Kafka 4.1 that Penstock does not use, and how Kafka lets them be altered.

Tools that set up clusters alter them without knowing which broker they talk to. Where Kafka accepts a change
it is accepted here: kept, described, and without effect, which the log says (`dynamic.py`).
"""

from __future__ import annotations

from typing import Any

from penstock.config.security import LISTENER_SETTINGS
from penstock.config.topic import DOUBLE, INT, LIST, LONG, STRING
from penstock.config.types import LONG_MAX, ConfigDef, ConfigType, OneOf

SHORT, CLASS, PASSWORD = ConfigType.SHORT, ConfigType.CLASS, ConfigType.PASSWORD


def _row(name: str, type: ConfigType, default: Any) -> ConfigDef:
    # No Java class but the default is found here, as with a Kafka that does not have it on its class path.
    validator = OneOf(default or "none") if type is CLASS else None
    return ConfigDef(
        name,
        type,
        default,
        "A setting of Kafka that Penstock does not use.",
        validator,
        dynamic=True,
        sensitive=type is PASSWORD,
    )


_FOR_ALL_BROKERS = (
    _row("background.threads", INT, 10),
    _row("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9),
    _row("log.cleaner.io.buffer.size", INT, 524288),
    _row("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157E308),
    _row("log.cleaner.threads", INT, 1),
    _row("log.local.retention.bytes", LONG, -2),
    _row("log.local.retention.ms", LONG, -2),
    _row("metric.reporters", CLASS, "org.apache.kafka.common.metrics.JmxReporter"),
    _row("num.io.threads", INT, 8),
    _row("num.network.threads", INT, 3),
    _row("num.replica.fetchers", INT, 1),
    _row("remote.fetch.max.wait.ms", INT, 500),
    _row("remote.list.offsets.request.timeout.ms", LONG, 30000),
    _row("remote.log.index.file.cache.total.size.bytes", LONG, 1073741824),
    _row("remote.log.manager.copier.thread.pool.size", INT, 10),
    _row("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX),
    _row("remote.log.manager.expiration.thread.pool.size", INT, 10),
    _row("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX),
    _row("remote.log.reader.threads", INT, 10),
)  # fmt: skip

_FOR_ONE_BROKER = (
    _row("principal.builder.class", CLASS,
         "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
    _row("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit"),
    _row("sasl.kerberos.min.time.before.relogin", LONG, 60000),
    _row("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",)),
    _row("sasl.kerberos.service.name", STRING, None),
    _row("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05),
    _row("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8),
    _row("sasl.login.refresh.buffer.seconds", SHORT, 300),
    _row("sasl.login.refresh.min.period.seconds", SHORT, 60),
    _row("sasl.login.refresh.window.factor", DOUBLE, 0.8),
    _row("sasl.login.refresh.window.jitter", DOUBLE, 0.05),
    _row("ssl.engine.factory.class", CLASS, None),
    _row("ssl.keymanager.algorithm", STRING, "SunX509"),
    _row("ssl.protocol", STRING, "TLSv1.3"),
    _row("ssl.provider", STRING, None),
    _row("ssl.secure.random.implementation", STRING, None),
    _row("ssl.trustmanager.algorithm", STRING, "PKIX"),
)  # fmt: skip

UNUSED: dict[str, ConfigDef] = {row.name: row for row in (*_FOR_ALL_BROKERS, *_FOR_ONE_BROKER)}
"""Those that can be altered while the broker runs."""

ONE_BROKER_ONLY = frozenset(row.name for row in _FOR_ONE_BROKER) | {
    "sasl.jaas.config", "ssl.cipher.suites", "ssl.client.auth", "ssl.crl.location",
    "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
"""Not for all brokers at once."""

ONE_LISTENER_ONLY = frozenset(
    name for name in LISTENER_SETTINGS if name.startswith(("ssl.key", "ssl.truststore."))
)
"""Only with the prefix of a listener, `listener.name.<name>.`, and for one broker."""

_READ_AT_START = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds
    broker.heartbeat.interval.ms broker.session.timeout.ms client.quota.callback.class
    connection.failed.authentication.delay.ms connections.max.reauth.ms controller.listener.names
    controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quorum.voters
    controller.socket.timeout.ms create.topic.policy.class.name
    delete.records.purgatory.purge.interval.requests early.start.listeners
    fetch.purgatory.purge.interval.requests group.coordinator.append.linger.ms
    group.coordinator.rebalance.protocols group.coordinator.threads group.share.assignors
    group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms
    group.streams.max.session.timeout.ms group.streams.max.size group.streams.max.standby.replicas
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas group.streams.session.timeout.ms
    initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.dir.failure.timeout.ms metadata.log.dir metadata.log.max.record.bytes.between.snapshots
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.replica.alter.log.dirs.threads offsets.commit.timeout.ms offsets.load.buffer.size
    offsets.topic.compression.codec process.roles producer.purgatory.purge.interval.requests
    queued.max.requests
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path
    remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
    replica.socket.receive.buffer.bytes replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms sasl.client.callback.handler.class
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
    security.providers share.coordinator.append.linger.ms share.coordinator.load.buffer.size
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes
    socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes ssl.principal.mapping.rules
    transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
    transaction.state.log.min.isr transaction.two.phase.commit.enable
"""

READ_AT_START = frozenset(_READ_AT_START.split())
"""Those that Kafka reads when it starts."""
