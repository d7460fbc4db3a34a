"""Settings: Kafka's names and defaults, clear refusals, and which of several values counts."""

import copy
import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from penstock.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigSource,
    ConfigType,
    Listener,
    LogConfig,
    check_dynamic,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
    docs,
    resolve_topic,
    validate_topic,
    validate_topic_override,
)
from penstock.errors import ConfigError, InvalidConfig, InvalidRequest

LONG_MAX = 2**63 - 1
NOTHING_SET = BrokerConfig.parse({})

KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(LONG_MAX),
    "flush.ms": str(LONG_MAX),
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": str(LONG_MAX),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


@pytest.mark.promise("topics", "Topic settings have Kafka's names and defaults")
def test_topic_settings_have_kafkas_defaults() -> None:
    described = {entry.name: entry.value for entry in describe_topic(NOTHING_SET, {})}
    assert described.items() >= KAFKA_TOPIC_DEFAULTS.items()


def test_log_config_has_a_field_for_every_topic_setting_and_the_tables_defaults() -> None:
    assert {field.name for field in fields(LogConfig)} == {row.attribute for row in TOPIC_CONFIGS.values()}
    assert LogConfig() == resolve_topic(NOTHING_SET, {})


def test_every_default_in_the_tables_is_itself_allowed() -> None:
    for row in (*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()):
        text = row.format(row.default)
        assert text is None or row.parse(text) == row.default, row.name


def test_an_override_counts_over_the_brokers_setting() -> None:
    broker = BrokerConfig.parse({"log.retention.ms": "5000", "log.segment.bytes": "1000"})
    config = resolve_topic(broker, {"retention.ms": "-1", "cleanup.policy": "compact, delete"})
    assert (config.retention_ms, config.segment_bytes) == (-1, 1000)
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compact and config.delete


def test_topics_without_overrides_share_one_config() -> None:
    broker = BrokerConfig.parse({})
    assert resolve_topic(broker, {}) is resolve_topic(broker, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_in_milliseconds_beats_minutes_beats_hours(given: dict[str, str], expected: int) -> None:
    assert resolve_topic(BrokerConfig.parse(given), {}).retention_ms == expected


def test_penstocks_own_settings_are_typed() -> None:
    config = resolve_topic(
        NOTHING_SET,
        {
            "penstock.retention.strict": "true",
            "penstock.retention.consumed.groups": "a, b,,a",
            "penstock.retention.records": "1000",
        },
    )
    assert config.retention_records == 1000
    assert config.retention_strict is True
    assert config.retention_consumed_groups == ("a", "b")


@pytest.mark.promise("topics", "The error for an invalid setting names it, its value and the allowed values")
@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "1_000", "64-bit integer"),
        ("penstock.retention.records", "-2", "at least -1"),
        ("retention.ms", "9223372036854775808", "64-bit integer"),
        ("retention.ms", "", "64-bit integer"),
        ("segment.bytes", "2147483648", "32-bit integer"),
        ("segment.bytes", "13", "at least 14"),
        ("segment.ms", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.1", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "compact,remove", "compact, delete"),
        ("compression.type", "brotli", "zstd"),
        ("compression.gzip.level", "0", "-1 or between 1 and 9"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("min.insync.replicas", "0", "at least 1"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate_topic_override(name, value)
    message = str(caught.value)
    assert name in message
    assert repr(value) in message
    assert allowed in message


@pytest.mark.promise("topics", "The error for an invalid setting names it, its value and the allowed values")
def test_an_unknown_topic_setting_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.msec.*Did you mean retention\.ms\?"):
        validate_topic_override("retention.msec", "1")


def test_compaction_lags_that_contradict_are_refused_when_made_but_still_open() -> None:
    overrides = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms=10.*max\.compaction\.lag\.ms=9"):
        validate_topic(NOTHING_SET, overrides)
    assert resolve_topic(NOTHING_SET, overrides).max_compaction_lag_ms == 9


def test_broker_settings_are_attributes_and_names() -> None:
    config = BrokerConfig.parse({"num.partitions": " 3 ", "auto.create.topics.enable": "FALSE"})
    assert config.num_partitions == config.get("num.partitions") == 3
    assert config.auto_create_topics_enable is False
    assert config.queued_max_request_bytes == 256 * 1024 * 1024
    assert config.values == {"num.partitions": " 3 ", "auto.create.topics.enable": "FALSE"}
    with pytest.raises(AttributeError):
        config.num_partition  # noqa: B018
    with pytest.raises(AttributeError):
        config.num_partitions = 4


def test_a_broker_config_can_be_copied_and_sent_to_another_process() -> None:
    config = BrokerConfig.parse({"node.id": "7"}).with_dynamic({"log.retention.ms": "1"}, {})
    for twin in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert (twin.node_id, twin.log_retention_ms, twin.values) == (7, 1, {"node.id": "7"})


@pytest.mark.promise("topics", "The error for an invalid setting names it, its value and the allowed values")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num.partition": "1"}, r"num\.partition\..*Did you mean num\.partitions\?"),
        ({"num.partitions": "0"}, r"'0'.*num\.partitions.*at least 1"),
        ({"node.id": "1", "broker.id": "2"}, r"node\.id=1.*broker\.id=2"),
        ({"log.retention.ms": "0"}, r"log\.retention\.ms=0"),
        ({"listeners": "X://localhost:1"}, r"add X:PROTOCOL to listener\.security\.protocol\.map"),
        ({"listeners": "PLAINTEXT://localhost:65536"}, r"PLAINTEXT://host:port"),
        ({"listeners": "localhost:9092"}, r"PLAINTEXT://host:port"),
        ({"listeners": ""}, r"PLAINTEXT://host:port"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://a:1"}, r"PLAINTEXT://host:port"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, r"no client can connect"),
        ({"queued.max.request.bytes": "1"}, r"socket\.request\.max\.bytes"),
        ({"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"}, "above"),
        ({"log.dirs": ","}, r"log\.dirs.*not empty"),
    ],
)
def test_a_broker_does_not_start_with_a_bad_setting(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.parse(given)


def test_listeners_are_parsed_and_loopback_is_the_default() -> None:
    assert NOTHING_SET.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert NOTHING_SET.advertised_listeners == ()
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://[::1]:0, plaintext://:9093"})
    assert config.listeners == (Listener("PLAINTEXT", "::1", 0), Listener("PLAINTEXT", "", 9093))


def test_broker_id_and_log_dir_are_other_names_of_node_id_and_log_dirs() -> None:
    config = BrokerConfig.parse({"broker.id": "4", "log.dir": "/data"})
    assert (config.node_id, config.broker_id, config.log_dirs) == (4, 4, ("/data",))
    assert BrokerConfig.parse({"log.dirs": "/a,/b"}).log_dirs == ("/a", "/b")


@pytest.mark.promise(
    "topics", "A topic's own value overrides the broker's value, which overrides the cluster-wide default"
)
def test_a_broker_setting_altered_for_one_broker_beats_all_brokers_beats_the_file() -> None:
    static = BrokerConfig.parse({"log.retention.ms": "1", "message.max.bytes": "11"})
    config = static.with_dynamic({"log.retention.ms": "2", "log.roll.ms": "22"}, {"log.retention.ms": "3"})
    topic = resolve_topic(config, {})
    assert (topic.retention_ms, topic.segment_ms, topic.max_message_bytes) == (3, 22, 11)
    assert resolve_topic(static, {}).retention_ms == 1


def test_describe_topic_tells_where_a_value_comes_from_and_what_it_hides() -> None:
    broker = BrokerConfig.parse({"log.retention.hours": "1"}).with_dynamic({"log.retention.ms": "2"}, {})
    (entry,) = describe_topic(broker, {"retention.ms": "5"}, ["retention.ms"])
    assert (entry.value, entry.source, entry.read_only) == ("5", ConfigSource.DYNAMIC_TOPIC, False)
    assert [tuple(synonym) for synonym in entry.synonyms] == [
        ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    (inherited,) = describe_topic(broker, {}, ["retention.ms"])
    assert (inherited.value, inherited.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_topics_value_is_shown_in_its_own_unit() -> None:
    (entry,) = describe_topic(BrokerConfig.parse({"log.roll.hours": "2"}), {}, ["segment.ms"])
    assert (entry.value, entry.synonyms) == ("7200000", ())


def test_describe_broker_tells_source_and_what_cannot_be_altered() -> None:
    config = BrokerConfig.parse({"num.partitions": "2"}).with_dynamic({}, {"log.cleaner.backoff.ms": "9"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert set(entries) == set(BROKER_CONFIGS)
    partitions, backoff = entries["num.partitions"], entries["log.cleaner.backoff.ms"]
    assert (partitions.value, partitions.source) == ("2", ConfigSource.STATIC_BROKER)
    assert (backoff.value, backoff.source) == ("9", ConfigSource.DYNAMIC_BROKER)
    assert partitions.read_only and not backoff.read_only
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.hours"].source is ConfigSource.DEFAULT


def test_describe_broker_defaults_tells_only_what_was_altered_for_all() -> None:
    (entry,) = describe_broker_defaults({"log.retention.ms": "2"})
    assert (entry.name, entry.value, entry.source) == (
        "log.retention.ms",
        "2",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


@pytest.mark.parametrize("for_all", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "log.dirs", "listeners", "node.id", "log.retention.hours", "process.roles", "ssl.keystore.location",
        "message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms",
    ],
)  # fmt: skip
def test_a_setting_that_is_read_at_the_start_was_removed_or_belongs_to_a_listener_cannot_be_altered(
    name: str, for_all: bool
) -> None:
    with pytest.raises(InvalidRequest, match=name):
        check_dynamic(name, "1", for_all=for_all)


def test_an_alterable_broker_setting_is_still_validated() -> None:
    assert check_dynamic("log.retention.ms", "1000", for_all=True) is None
    with pytest.raises(InvalidRequest, match=r"log\.retention\.ms.*at least -1"):
        check_dynamic("log.retention.ms", "-7", for_all=True)


@pytest.mark.promise(
    "protocol",
    "Unused and unknown broker settings are accepted or rejected as in Kafka, with a warning in the log",
)
def test_settings_of_kafka_that_are_not_used_and_unknown_ones_are_accepted_with_a_note() -> None:
    for name, value in (("log.cleaner.threads", "2"), ("num.io.threads", "8")):
        for for_all in (True, False):
            note = check_dynamic(name, value, for_all=for_all)
            assert note == f"{name} is not used by Penstock and has no effect."
    with pytest.raises(InvalidRequest, match=r"log\.cleaner\.threads"):
        check_dynamic("log.cleaner.threads", "two", for_all=True)
    with pytest.raises(InvalidRequest, match=r"metric\.reporters"):
        check_dynamic("metric.reporters", "no.such.Class", for_all=True)
    note = check_dynamic("num.partitons", "3", for_all=True)
    assert note is not None and "has no effect. Did you mean num.partitions?" in note
    # what belongs to one broker is not altered for all
    assert check_dynamic("listener.name.x.ssl.keystore.location", "kafka", for_all=False) is None
    assert check_dynamic("sasl.kerberos.service.name", "kafka", for_all=False) is not None
    for name in ("sasl.kerberos.service.name", "listener.name.x.ssl.keystore.location"):
        with pytest.raises(InvalidRequest, match="name a broker"):
            check_dynamic(name, "kafka", for_all=True)


def test_altered_settings_without_effect_are_described_as_kafka_does() -> None:
    config = NOTHING_SET.with_dynamic(
        {"background.threads": "6", "no.such.other": "y"},
        {"background.threads": "7", "no.such.thing": "x", "listener.name.x.plain.sasl.jaas.config": "s"},
    )
    entries = {entry.name: entry for entry in describe_broker(config) if entry.name not in BROKER_CONFIGS}
    threads, unknown, secret = (
        entries["background.threads"], entries["no.such.thing"],
        entries["listener.name.x.plain.sasl.jaas.config"],
    )  # fmt: skip
    assert (threads.value, threads.type, threads.read_only) == ("7", ConfigType.INT, False)
    assert [tuple(synonym) for synonym in threads.synonyms] == [
        ("background.threads", "7", ConfigSource.DYNAMIC_BROKER),
        ("background.threads", "6", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("background.threads", "10", ConfigSource.DEFAULT),
    ]
    # of what is not known it is not known either whether it is a secret
    assert (unknown.value, unknown.type, unknown.read_only, unknown.sensitive) == (
        None, ConfigType.UNKNOWN, True, True,
    )  # fmt: skip
    assert (secret.value, secret.type, secret.sensitive) == (None, ConfigType.PASSWORD, True)
    assert [entry.name for entry in describe_broker_defaults(config.dynamic_default)] == [
        "background.threads", "no.such.other",
    ]  # fmt: skip


def test_synonyms_begin_with_the_setting_that_is_asked_for() -> None:
    entries = {entry.name: entry for entry in describe_broker(NOTHING_SET)}
    assert entries["log.retention.ms"].synonyms == entries["log.retention.minutes"].synonyms == ()
    assert [tuple(synonym) for synonym in entries["log.retention.hours"].synonyms] == [
        ("log.retention.hours", "168", ConfigSource.DEFAULT)
    ]
    altered = NOTHING_SET.with_dynamic({"log.retention.ms": "2"}, {})
    (retention,) = describe_broker(altered, ["log.retention.ms"])
    assert [synonym.name for synonym in retention.synonyms] == ["log.retention.ms", "log.retention.hours"]


@pytest.mark.promise(
    "protocol",
    "Settings are described as in Kafka: their sources, the synonyms of defaults, and settings without "
    "effect; `advertised.listeners` has its effective value",
)
def test_the_advertised_listeners_are_the_effective_ones() -> None:
    for config in (NOTHING_SET, BrokerConfig.parse({"advertised.listeners": "PLAINTEXT://h:0"})):
        (entry,) = describe_broker(config, ["advertised.listeners"], advertised="PLAINTEXT://h:4711")
        assert entry.value == "PLAINTEXT://h:4711"


@pytest.mark.promise("docs", "The reference pages match the code")
def test_the_configuration_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == docs.render(), "run: python -m penstock.config.docs > docs/configuration.md"
