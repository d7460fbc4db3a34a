"""The broker settings: one table, Kafka's names and (where not said otherwise) defaults, and BrokerConfig.

The broker's defaults of topic settings are not repeated here: their rows are derived from the synonyms in the
topic table. A BrokerConfig is immutable; settings that are altered while the broker runs make a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.config.access import ACCESS_ROWS
from penstock.config.listeners import (
    INTERNAL,
    PREFIX,
    Address,
    Listener,
    Listeners,
    inter_broker_listener,
)
from penstock.config.security import JAAS, LISTENER_SETTINGS, SECURITY_CONFIGS, listener_setting
from penstock.config.topic import (
    BOOLEAN,
    DAY,
    HOUR,
    INT,
    LIST,
    LONG,
    MIB,
    MINUTE,
    SECOND,
    STRING,
    TOPIC_CONFIGS,
)
from penstock.config.types import (
    INT_MAX,
    LONG_MAX,
    AtLeastOneOf,
    ConfigDef,
    ConfigSource,
    ConfigType,
    NonEmpty,
    OneOf,
    Range,
    UnlimitedOr,
    Validator,
    did_you_mean,
)
from penstock.config.unused import UNUSED
from penstock.errors import ConfigError


def _row(
    name: str, type: ConfigType, default: Any, validator: Validator | None, doc: str, dynamic: bool = False
) -> ConfigDef:
    return ConfigDef(name, type, default, doc, validator, dynamic=dynamic)


# name, type, default, what is allowed, meaning
_OWN = (
    _row("advertised.listeners", LIST, None, Listeners(),
         "The addresses that clients get; by default those of `listeners`, with the port really bound."),
    _row("auto.create.topics.enable", BOOLEAN, True, None, "Create a topic when a client first asks for it."),
    _row("broker.id", INT, None, Range(0), "Another name of node.id."),
    _row("broker.rack", STRING, None, None, "The rack of this broker; replicas are spread over racks."),
    _row("connections.max.idle.ms", LONG, 10 * MINUTE, UnlimitedOr(Range(1)),
         "Close a connection after this long without a request; -1 for never."),
    _row("default.replication.factor", INT, 1, Range(1, 32767), "Replicas of a topic that does not say."),
    _row("delete.topic.enable", BOOLEAN, True, None, "Whether topics can be deleted."),
    _row("fetch.max.bytes", INT, 55 * MIB, Range(1024), "The most record bytes in one fetch response."),
    _row("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), Listeners(),
         "Where the broker listens; Penstock's default is loopback only."),
    _row("log.cleaner.backoff.ms", LONG, 15 * SECOND, Range(0),
         "How long the cleaner waits when there is nothing to compact.", dynamic=True),
    _row("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, Range(MIB),
         "The memory that the cleaner may use for the keys of a log.", dynamic=True),
    _row("log.cleaner.enable", BOOLEAN, True, None, "Whether logs are compacted at all."),
    _row("log.dir", STRING, "penstock-data", NonEmpty(), "The data directory, where log.dirs is not set."),
    _row("log.dirs", LIST, None, NonEmpty(), "The data directories."),
    _row("log.flush.offset.checkpoint.interval.ms", INT, MINUTE, Range(0),
         "How often the recovery points are written."),
    _row("log.flush.start.offset.checkpoint.interval.ms", INT, MINUTE, Range(0),
         "How often the log start offsets are written."),
    _row("log.retention.check.interval.ms", LONG, 5 * MINUTE, Range(1), "How often retention is applied."),
    _row("max.connections", INT, INT_MAX, Range(0), "The most connections at a time.", dynamic=True),
    _row("max.incremental.fetch.session.cache.slots", INT, 1000, Range(0),
         "How many fetch sessions are remembered."),
    _row("max.request.partition.size.limit", INT, 2000, Range(1),
         "The most partitions in one DescribeTopicPartitions response."),
    _row("node.id", INT, 1, Range(0), "The number of this broker in the cluster."),
    _row("num.partitions", INT, 1, Range(1), "Partitions of a topic that does not say."),
    _row("num.recovery.threads.per.data.dir", INT, 2, Range(1), "Threads that open logs at the start."),
    _row("penstock.metrics.auth.file", STRING, None, None,
         "The users of the metrics port, each `NAME: HASH, ROLE` (`penstock users hash`); by default all."),
    _row("penstock.metrics.jwks", STRING, None, None,
         "Takes bearer tokens (JWT) at the metrics port that one of these keys has signed: a file or a URL."),
    _row("penstock.metrics.jwt.audience", LIST, (), None, "Takes only tokens for one of these."),
    _row("penstock.metrics.jwt.issuer", STRING, None, None, "Takes only tokens of this issuer."),
    _row("penstock.metrics.listener", STRING, "", Address(),
         "Where /metrics, /health, /ready and /admin/loggers are served over HTTP; empty for nowhere."),
    _row("penstock.metrics.max.request.rate", INT, 0, Range(0),
         "Requests a second of a user, or of an address without logins, to the metrics port; 0 for any."),
    _row("penstock.metrics.ssl.keystore.location", STRING, None, None,
         "A PEM file with the certificate and key of the metrics port, which then uses HTTPS."),
    _row("producer.id.expiration.ms", INT, DAY, Range(1),
         "How long the sequence numbers of a silent producer are remembered.", dynamic=True),
    _row("queued.max.request.bytes", LONG, 256 * MIB, UnlimitedOr(Range(1)),
         "Request bytes held in memory before the broker stops reading; Kafka's default is -1, no limit."),
    _row("socket.request.max.bytes", INT, 100 * MIB, Range(1), "The largest request that is read."),
    _row("telemetry.max.bytes", INT, MIB, Range(1),
         "The largest push of client metrics (KIP-714), compressed and decompressed."),
)  # fmt: skip


# The coordinator of classic groups and of committed offsets.
_GROUPS = (
    _row("group.initial.rebalance.delay.ms", INT, 3 * SECOND, Range(0),
         "How long the first member of an empty group waits for others to join it."),
    _row("group.max.session.timeout.ms", INT, 30 * MINUTE, Range(0), "The longest session of a member."),
    _row("group.max.size", INT, INT_MAX, Range(1), "The most members of a classic group."),
    _row("group.min.session.timeout.ms", INT, 6 * SECOND, Range(0), "The shortest session of a member."),
    _row("offset.metadata.max.bytes", INT, 4096, Range(0), "The longest metadata of a committed offset."),
    _row("offsets.commit.timeout.ms", INT, 5 * SECOND, Range(1),
         "How long the answer of a group coordinator waits for its records to be replicated."),
    _row("offsets.retention.check.interval.ms", LONG, 10 * MINUTE, Range(1),
         "How often expired offsets are looked for."),
    _row("offsets.retention.minutes", INT, 7 * 24 * 60, Range(1),
         "How long offsets are kept after their group became empty, or after the commit where no group is."),
    _row("offsets.topic.num.partitions", INT, 50, Range(1), "Partitions of a new __consumer_offsets."),
    _row("offsets.topic.replication.factor", INT, 1, Range(1, 32767),
         "Replicas of a new __consumer_offsets; Kafka's default is 3."),
    _row("offsets.topic.segment.bytes", INT, 100 * MIB, Range(1024), "Segment size of __consumer_offsets."),
)  # fmt: skip


# Consumer groups with the protocol of KIP-848.
_CONSUMER_GROUPS = (
    _row("group.consumer.assignors", LIST, ("uniform", "range"), AtLeastOneOf("uniform", "range"),
         "The assignors that members may ask for; the first is for groups that do not ask."),
    _row("group.consumer.heartbeat.interval.ms", INT, 5 * SECOND, Range(1),
         "How often the members of a consumer group send a heartbeat."),
    _row("group.consumer.max.heartbeat.interval.ms", INT, 15 * SECOND, Range(1),
         "The most that a group may set for consumer.heartbeat.interval.ms."),
    _row("group.consumer.max.session.timeout.ms", INT, MINUTE, Range(1),
         "The most that a group may set for consumer.session.timeout.ms."),
    _row("group.consumer.max.size", INT, INT_MAX, Range(1), "The most members of a consumer group."),
    _row("group.consumer.migration.policy", STRING, "bidirectional",
         OneOf("bidirectional", "upgrade", "downgrade", "disabled"),
         "Which way groups with members may go between the classic and the consumer protocol."),
    _row("group.consumer.min.heartbeat.interval.ms", INT, 5 * SECOND, Range(1),
         "The least that a group may set for consumer.heartbeat.interval.ms."),
    _row("group.consumer.min.session.timeout.ms", INT, 45 * SECOND, Range(1),
         "The least that a group may set for consumer.session.timeout.ms."),
    _row("group.consumer.session.timeout.ms", INT, 45 * SECOND, Range(1),
         "How long a member of a consumer group may be silent before it is removed from the group."),
)  # fmt: skip


# The coordinator of transactions.
_TRANSACTIONS = (
    _row("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0),
         "How long the broker itself waits for the producer's last transaction to end, before it answers"
         " CONCURRENT_TRANSACTIONS to a produce of the next one; EndTxn waits as long for its markers."),
    _row("add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1),
         "How often the broker asks the coordinator meanwhile."),
    _row("transaction.max.timeout.ms", INT, 15 * MINUTE, Range(1),
         "The longest time that a client may ask for its transactions."),
    _row("transaction.partition.verification.enable", BOOLEAN, True, None,
         "Whether a transactional produce of an older client is checked with the coordinator (KIP-890).",
         dynamic=True),
    _row("transaction.state.log.num.partitions", INT, 50, Range(1),
         "Partitions of a new __transaction_state."),
    _row("transaction.state.log.replication.factor", INT, 1, Range(1, 32767),
         "Replicas of a new __transaction_state; Kafka's default is 3."),
    _row("transaction.state.log.segment.bytes", INT, 100 * MIB, Range(1024),
         "Segment size of __transaction_state."),
    _row("transactional.id.expiration.ms", INT, 7 * DAY, Range(1),
         "How long a transactional id is remembered after its last transaction."),
)  # fmt: skip


# Share groups (KIP-932), and the coordinator of their state.
_SHARE = (
    _row("group.share.delivery.count.limit", INT, 5, Range(2, 10),
         "How often a record is delivered to a share group at most."),
    _row("group.share.heartbeat.interval.ms", INT, 5 * SECOND, Range(1),
         "How often the members of a share group send a heartbeat."),
    _row("group.share.max.heartbeat.interval.ms", INT, 15 * SECOND, Range(1),
         "The most that a share group may set for share.heartbeat.interval.ms."),
    _row("group.share.max.record.lock.duration.ms", INT, MINUTE, Range(30 * SECOND, HOUR),
         "The most that a share group may set for share.record.lock.duration.ms."),
    _row("group.share.max.session.timeout.ms", INT, MINUTE, Range(1),
         "The most that a share group may set for share.session.timeout.ms."),
    _row("group.share.max.share.sessions", INT, 2000, Range(1), "The most share sessions at a time."),
    _row("group.share.max.size", INT, 200, Range(1, 1000), "The most members of a share group."),
    _row("group.share.min.heartbeat.interval.ms", INT, 5 * SECOND, Range(1),
         "The least that a share group may set for share.heartbeat.interval.ms."),
    _row("group.share.min.record.lock.duration.ms", INT, 15 * SECOND, Range(SECOND, 30 * SECOND),
         "The least that a share group may set for share.record.lock.duration.ms."),
    _row("group.share.min.session.timeout.ms", INT, 45 * SECOND, Range(1),
         "The least that a share group may set for share.session.timeout.ms."),
    _row("group.share.partition.max.record.locks", INT, 2000, Range(100, 10000),
         "How many records of a partition a share group may have in flight."),
    _row("group.share.record.lock.duration.ms", INT, 30 * SECOND, Range(SECOND, HOUR),
         "How long a record is locked for the member that it was delivered to."),
    _row("group.share.session.timeout.ms", INT, 45 * SECOND, Range(1),
         "How long a member of a share group may be silent before it is removed from the group."),
    _row("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, Range(0),
         "After how many changes the whole state of a share partition is written again."),
    _row("share.coordinator.state.topic.num.partitions", INT, 50, Range(1),
         "Partitions of a new __share_group_state."),
    _row("share.coordinator.state.topic.prune.interval.ms", INT, 5 * MINUTE, Range(1),
         "How often records of __share_group_state that are no longer needed are deleted."),
    _row("share.coordinator.state.topic.replication.factor", INT, 1, Range(1, 32767),
         "Replicas of a new __share_group_state; Kafka's default is 3."),
    _row("share.coordinator.state.topic.segment.bytes", INT, 100 * MIB, Range(1024),
         "Segment size of __share_group_state."),
    _row("share.coordinator.write.timeout.ms", INT, 5 * SECOND, Range(1),
         "How long a change of share state waits for its records to be replicated."),
)  # fmt: skip


# Several brokers that form a cluster. Times and sizes of replication are those of Kafka.
_CLUSTER = (
    _row("auto.leader.rebalance.enable", BOOLEAN, True, None,
         "Give partitions back to their preferred leaders from time to time."),
    _row("controlled.shutdown.enable", BOOLEAN, True, None,
         "Move leaders to other brokers before this one stops."),
    _row("follower.replication.throttled.rate", LONG, LONG_MAX, Range(0),
         "Bytes a second that followers on this broker fetch for follower.replication.throttled.replicas.",
         dynamic=True),
    _row("leader.imbalance.check.interval.seconds", LONG, 300, Range(1),
         "How often the controller looks whether preferred leaders lead."),
    _row("leader.imbalance.per.broker.percentage", INT, 10, Range(0, 100),
         "Up to this share of a broker's partitions may be led elsewhere."),
    _row("leader.replication.throttled.rate", LONG, LONG_MAX, Range(0),
         "Bytes a second that leaders on this broker send of leader.replication.throttled.replicas.",
         dynamic=True),
    _row("replica.fetch.backoff.ms", INT, SECOND, Range(0), "How long a follower waits after an error."),
    _row("replica.fetch.max.bytes", INT, MIB, Range(0), "Bytes that a follower fetches of one partition."),
    _row("replica.fetch.min.bytes", INT, 1, Range(0), "The least bytes that a follower waits for."),
    _row("replica.fetch.response.max.bytes", INT, 10 * MIB, Range(0), "Bytes of one answer to a follower."),
    _row("replica.fetch.wait.max.ms", INT, 500, Range(0), "How long a follower's fetch may wait."),
    _row("replica.high.watermark.checkpoint.interval.ms", LONG, 5 * SECOND, Range(1),
         "How often high watermarks are written to disk."),
    _row("replica.lag.time.max.ms", LONG, 30 * SECOND, Range(1),
         "A follower that has not caught up for this long is no longer in sync."),
    _row("replica.selector.class", STRING, None, None,
         "RackAwareReplicaSelector (in Kafka's package) lets consumers read from a follower in their rack."),
    _row("replica.socket.timeout.ms", INT, 30 * SECOND, Range(1), "How long a broker waits for another."),
    _row("zookeeper.connect", STRING, None, None,
         "The ZooKeeper servers of the cluster, host:port,host:port/chroot. Default: none, a"
         " single broker with its metadata in a local file."),
    _row("zookeeper.connection.timeout.ms", INT, 18 * SECOND, Range(1),
         "How long to wait for a server to answer."),
    _row("zookeeper.session.timeout.ms", INT, 18 * SECOND, Range(1),
         "A broker that is silent for this long is considered dead."),
    _row("zookeeper.ssl.client.enable", BOOLEAN, False, None,
         "Whether to speak TLS to ZooKeeper; its certificate and host name are checked."),
    _row("zookeeper.ssl.keystore.location", STRING, None, None,
         "A PEM file with the private key and the certificate that this broker shows to ZooKeeper."),
    _row("zookeeper.ssl.truststore.location", STRING, None, None,
         "A PEM file with the authorities of ZooKeeper's certificates; without it, those of the machine."),
)  # fmt: skip


def _topic_defaults() -> Iterator[ConfigDef]:
    """The rows of the topic settings' synonyms: the weakest holds the default, the strongest is dynamic."""
    for topic in TOPIC_CONFIGS.values():
        for i, synonym in enumerate(topic.synonyms):
            last = i == len(topic.synonyms) - 1
            unit = {HOUR: ", in hours", MINUTE: ", in minutes"}.get(synonym.factor, "")
            default = topic.default if synonym.factor == 1 else topic.default // synonym.factor
            yield ConfigDef(
                name=synonym.name,
                # Kafka reads the values in hours and minutes as 32-bit integers.
                type=topic.type if synonym.factor == 1 else INT,
                default=default if last else None,
                doc=f"The default of the topic setting {topic.name}{unit}.",
                validator=topic.validator,
                dynamic=i == 0,
            )


BROKER_CONFIGS: dict[str, ConfigDef] = {
    row.name: row
    for row in sorted(
        (
            *_OWN,
            *SECURITY_CONFIGS,
            *_GROUPS,
            *_CONSUMER_GROUPS,
            *_TRANSACTIONS,
            *_SHARE,
            *_CLUSTER,
            *ACCESS_ROWS,
            *_topic_defaults(),
        ),
        key=lambda row: row.name,
    )
}


class BrokerConfig:
    """All settings of one broker, typed: `config.num_partitions`, or `config.get("num.partitions")`.

    Three layers of text, the strongest first: altered for this broker, altered for all brokers, given at the
    start (`values`); under them the defaults. `node.id` and `broker.id`, and `log.dirs` and `log.dir`, are
    one setting each: the attributes `node_id` and `log_dirs` are always set. `listeners` and
    `advertised_listeners` are tuples of Listener (the second may be empty), `protocols` has the security
    protocol of each listener, `inter_broker_listener` the name of the one for the other brokers.
    """

    # Every setting is an attribute in __dict__: they are read for each request.
    __slots__ = ("__dict__", "_of_listeners", "_typed", "dynamic_broker", "dynamic_default", "values")

    values: dict[str, str]
    dynamic_broker: dict[str, str]
    dynamic_default: dict[str, str]

    def __init__(
        self, values: dict[str, str], dynamic_default: dict[str, str], dynamic_broker: dict[str, str]
    ) -> None:
        given = {**values, **dynamic_default, **dynamic_broker}
        typed = {row.attribute: _typed(row, given.get(row.name)) for row in BROKER_CONFIGS.values()}
        of_listeners = _of_listeners(given)
        _unite(typed, given)
        _check_together(typed)
        _check_listeners(typed, values)
        set_ = object.__setattr__
        set_(self, "values", values)
        set_(self, "dynamic_default", dynamic_default)
        set_(self, "dynamic_broker", dynamic_broker)
        set_(self, "_typed", typed)
        set_(self, "_of_listeners", of_listeners)
        self.__dict__.update(typed)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> BrokerConfig:
        """From text as in a server.properties; ConfigError names the key, the value and what is allowed."""
        for name in values:
            if name not in BROKER_CONFIGS and not (name.startswith(PREFIX) and listener_setting(name)):
                raise ConfigError(f"Unknown broker configuration {name}.{did_you_mean(name, BROKER_CONFIGS)}")
        return cls(dict(values), {}, {})

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """The same broker with other altered settings: those for all brokers, and those for this one."""
        return BrokerConfig(self.values, dict(default), dict(broker))

    def get(self, name: str) -> Any:
        """The typed value of a setting by Kafka's name; KeyError if there is no such setting."""
        return self._typed[BROKER_CONFIGS[name].attribute]

    def of_listener(self, listener: str, name: str) -> Any:
        """The typed value of a setting for this listener: its own, or else the broker's."""
        own = self._of_listeners.get((listener, name))
        return self.get(name) if own is None and name in LISTENER_SETTINGS else own

    def layers(self, name: str) -> list[tuple[ConfigSource, str | None]]:
        """Where the setting has a value, the strongest first, as text."""
        found: list[tuple[ConfigSource, str | None]] = [
            (source, layer[name])
            for source, layer in (
                (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
                (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
                (ConfigSource.STATIC_BROKER, self.values),
            )
            if name in layer
        ]
        row = BROKER_CONFIGS.get(name) or UNUSED.get(name)
        if row is not None and row.default is not None:
            found.append((ConfigSource.DEFAULT, row.format(row.default)))
        return found

    def __getattr__(self, attribute: str) -> Any:
        # Only reached for what is neither a slot nor a setting.
        raise AttributeError(f"no broker setting {attribute}")

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError("a BrokerConfig does not change")

    def __reduce__(self) -> tuple[Any, ...]:
        return BrokerConfig, (self.values, self.dynamic_default, self.dynamic_broker)

    def __repr__(self) -> str:
        # Not the values: some are secrets.
        return f"BrokerConfig({', '.join(sorted(self.values))})"


def _typed(row: ConfigDef, text: str | None) -> Any:
    if text is None:
        return row.default
    try:
        return row.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _unite(typed: dict[str, Any], given: Mapping[str, str]) -> None:
    """Folds the two names of one setting into both attributes, and listeners into their parsed form."""
    if typed["broker_id"] is not None:
        if "node.id" in given and typed["node_id"] != typed["broker_id"]:
            raise ConfigError(f"node.id={typed['node_id']} and broker.id={typed['broker_id']} must be equal")
        typed["node_id"] = typed["broker_id"]
    typed["broker_id"] = typed["node_id"]
    typed["log_dirs"] = typed["log_dirs"] or (typed["log_dir"],)
    for name in ("listeners", "advertised_listeners"):
        typed[name] = tuple(Listener.parse(item) for item in typed[name] or ())
    names = {listener.name for listener in typed["listeners"]}
    pairs = (item.partition(":") for item in typed["listener_security_protocol_map"].split(","))
    known = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    if "PLAINTEXT" in names:
        known.setdefault(INTERNAL, "PLAINTEXT")
    typed["protocols"] = {name: known[name] for name in names if name in known}
    typed["inter_broker_listener"] = inter_broker_listener(typed, names)


def _of_listeners(given: Mapping[str, str]) -> dict[tuple[str, str], Any]:
    """The settings of single listeners, by listener and name."""
    found: dict[tuple[str, str], Any] = {}
    for name, text in given.items():
        if name.startswith(PREFIX) and (known := listener_setting(name)) is not None:
            found[known] = _typed(LISTENER_SETTINGS.get(known[1]) or LISTENER_SETTINGS[JAAS], text)
    return found


def _check_listeners(typed: Mapping[str, Any], values: Mapping[str, str]) -> None:
    names = {listener.name for listener in typed["listeners"]}
    unmapped = sorted(names - typed["protocols"].keys())
    if unmapped:
        raise ConfigError(
            f"listeners has {unmapped[0]}, whose protocol is not known: add {unmapped[0]}:PROTOCOL to "
            "listener.security.protocol.map"
        )
    for listener in typed["advertised_listeners"]:
        if listener.name not in names:
            raise ConfigError(f"advertised.listeners has {listener.name}, which listeners does not have")
    for name in values:
        if name.startswith(PREFIX) and (known := listener_setting(name)) and known[0] not in names:
            raise ConfigError(f"{name}: listeners has no {known[0]}")
    if typed["zookeeper_connect"] and typed["inter_broker_listener"] is None:
        wanted = typed["inter_broker_listener_name"] or typed["security_inter_broker_protocol"]
        raise ConfigError(
            f"listeners has no {wanted} for the other brokers: set inter.broker.listener.name to one of "
            f"{', '.join(sorted(names))}"
        )


def _check_together(typed: Mapping[str, Any]) -> None:
    """What no single setting can see."""
    low, high = typed["log_cleaner_min_compaction_lag_ms"], typed["log_cleaner_max_compaction_lag_ms"]
    if low > high:
        raise ConfigError(
            f"log.cleaner.min.compaction.lag.ms={low} must not be above "
            f"log.cleaner.max.compaction.lag.ms={high}"
        )
    queued, largest = typed["queued_max_request_bytes"], typed["socket_request_max_bytes"]
    if queued != -1 and queued < largest:
        raise ConfigError(
            f"queued.max.request.bytes={queued} must be -1 or at least socket.request.max.bytes={largest}, "
            "or the largest request could never be read"
        )
    for listener in typed["advertised_listeners"]:
        if listener.host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners has the host {listener.host!r}, to which no client can connect; "
                "name one that clients can reach"
            )
    for name in ("log_retention_ms", "log_retention_minutes", "log_retention_hours"):
        if typed[name] == 0:
            raise ConfigError(f"{name.replace('_', '.')}=0 is not allowed: must be -1 or at least 1")
