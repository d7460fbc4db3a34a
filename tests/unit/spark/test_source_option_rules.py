"""The rules of the source's options, as Spark's Kafka source has them."""

from __future__ import annotations

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.source.group import name_in
from penstock.spark.source.options import SOURCE_OPTIONS, SourceOptions, parse_source_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def parse(streaming: bool | None = None, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options({**BASE, **named}, streaming=streaming)


def test_a_stream_starts_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse(True).starting.kind == "latest"
    assert (parse(False).starting.kind, parse(False).ending.kind) == ("earliest", "latest")


def test_names_and_words_may_be_in_any_case() -> None:
    options = parse_source_options(
        {"KAFKA.bootstrap.SERVERS": "x:1", "SUBSCRIBE": " a , b,", "StartingOffsets": " EARLIEST ",
         "includeheaders": "TRUE"},
        streaming=True,
    )  # fmt: skip
    assert options.kafka == {"bootstrap.servers": "x:1"}
    assert options.subscription.topics == {"a", "b"}
    assert options.starting.kind == "earliest"
    assert options.include_headers


def test_one_time_goes_before_times_and_these_before_offsets() -> None:
    offsets, times = '{"a":{"0":3}}', '{"a":{"0":1700000000000}}'
    options = parse(startingTimestamp="5", startingOffsetsByTimestamp=times, startingOffsets=offsets)
    assert (options.starting.kind, options.starting.time_ms) == ("time", 5)
    assert parse(startingOffsetsByTimestamp=times, startingOffsets=offsets).starting.kind == "times"
    assert parse(startingOffsets=offsets).starting.per_partition == {("a", 0): 3}


def test_kafka_options_go_to_the_client_without_their_prefix() -> None:
    options = parse(kafka__security__protocol="SSL", kafka__max__poll__records="5")
    assert options.client_settings == {
        "client.id": "penstock-spark",
        "isolation.level": "read_committed",
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "max.poll.records": "5",
    }


@pytest.mark.promise("spark source", "The option `kafka.isolation.level` works as documented")
@pytest.mark.promise(
    "spark source",
    "Records of aborted and open transactions are not read by default; a query whose checkpoint is "
    "inside an open transaction waits until it ends",
)
def test_aborted_transactions_are_read_only_if_that_is_asked_for() -> None:
    assert parse().client_settings["isolation.level"] == "read_committed"
    asked = parse(kafka__isolation__level="read_uncommitted")
    assert asked.client_settings["isolation.level"] == "read_uncommitted"


def test_the_group_is_named_or_made_of_a_prefix() -> None:
    assert (parse().group_id, parse().group_id_prefix) == (None, "penstock")
    assert parse(groupIdPrefix="team").group_id_prefix == "team"
    options = parse(kafka__group__id="g", groupIdPrefix="team")
    assert options.group_id == "g"
    assert "group.id" not in options.client_settings
    assert options.warnings == ("groupIdPrefix is ignored, because kafka.group.id is set",)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15m", 900_000), ("15min", 900_000), ("2s", 2000), ("250ms", 250), ("40", 40), ("1h", 3_600_000)],
)
def test_a_delay_is_one_of_sparks_times(text: str, ms: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_limits_of_a_trigger_are_ignored_in_a_batch_with_a_warning() -> None:
    options = parse(False, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="1", maxTriggerDelay="1s")
    assert len([text for text in options.warnings if "ignored in batch queries" in text]) == 3


def test_an_option_from_elsewhere_is_told_and_has_no_effect() -> None:
    (warning,) = parse(mergeSchema="true").warnings
    assert "unknown option mergeschema has no effect" in warning
    assert parse(topic="out", checkpointLocation="x").warnings == ()


WRONG: list[tuple[dict[str, str], str]] = [
    ({"subscribe": " , "}, "no topics to read"),
    ({"assign": '{"a":[0]}'}, "only one of the options .* not subscribe and assign"),
    ({"subscribePattern": "a.*"}, "only one of the options .* not subscribe and subscribePattern"),
    ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers must be given"),
    ({"startingOffsets": "newest"}, "startingOffsets: expected e.g."),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp: expected one time in milliseconds"),
    ({"startingOffsetsByTimestamp": "{"}, "startingOffsetsByTimestamp: expected e.g."),
    ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest, not 'first'"),
    ({"minPartitions": "0"}, "minPartitions must be a whole number from 1 on, not '0'"),
    ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition must be a whole number"),
    ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is higher than maxOffsetsPerTrigger=8"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as"),
    ({"maxTriggerDelay": "5y"}, "maxTriggerDelay must be a time such as"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false, not 'maybe'"),
    ({"includeHeaders": "1"}, "includeHeaders must be true or false"),
    ({"partition.metadata.cache.ttl.ms": "0"}, "must be positive, or -1"),
    ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries must be"),
    ({"kafka.auto.offset.reset": "earliest"}, "set the option startingOffsets to earliest or latest"),
    ({"kafka.key.deserializer": "X"}, "kafka.key.deserializer is not supported: keys are binary"),
    ({"kafka.value.deserializer": "X"}, "kafka.value.deserializer is not supported: values are binary"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not supported"),
    ({"kafka.interceptor.classes": "X"}, "kafka.interceptor.classes is not supported"),
    ({"startingOffset": "latest"}, "unknown option startingoffset: did you mean startingOffsets"),
    ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ({"bootstrap.servers": "x:1"}, "did you mean kafka.bootstrap.servers"),
]


@pytest.mark.promise(
    "spark source",
    "Wrong options, missing topics and invalid offset JSON are rejected with an error that says what to do",
)
@pytest.mark.parametrize(("options", "told"), WRONG, ids=lambda value: str(value)[:50])
def test_a_wrong_option_is_refused_with_its_reason(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        parse_source_options({**BASE, **options}, streaming=None)


def test_what_to_read_must_be_said() -> None:
    with pytest.raises(BadOption, match="one of the options subscribe, subscribePattern and assign"):
        parse_source_options({"kafka.bootstrap.servers": "x:1"}, streaming=None)
    with pytest.raises(BadOption, match="is not a regular expression"):
        parse_source_options({"kafka.bootstrap.servers": "x:1", "subscribePattern": "a("}, streaming=None)
    with pytest.raises(BadOption, match="subscribePattern is empty"):
        parse_source_options({"kafka.bootstrap.servers": "x:1", "subscribePattern": " "}, streaming=None)


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    values = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"a":{"0":5}}', "endingTimestamp": "5"}
    with pytest.raises(BadOption, match="not valid in streaming queries"):
        parse(True, **{option: values[option]})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets cannot be -1"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest in a batch query"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets cannot be -2"),
        ({"startingOffsets": '{"a":{"0":1}}', "endingOffsets": '{"a":{"1":2}}'}, "name the same partitions"),
        ({"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":2}}'}, "for a-0: 5 > 2"),
    ],
)  # fmt: skip
def test_a_batch_that_would_read_nothing_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        parse(False, **options)


@pytest.mark.promise(
    "spark source",
    "A program for Spark's Kafka source runs after only the word in `format` is changed; columns, "
    "options and their rules are the same",
)
def test_every_option_is_described_on_the_page() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert [name for name in SOURCE_OPTIONS if f"`{name}`" not in page] == []


def test_the_name_of_a_query_is_read_from_the_description_of_its_jobs() -> None:
    ids = "id = 32adfca1-0b2b-470e-ae91-456139233c8a\nrunId = d3f20fab-53c6-43c2-9d7d-1424a7907047\nbatch = 1"
    assert name_in(f"my query\n{ids}") == "my query"
    assert name_in(f"two\nlines\n{ids}") == "two\nlines"
    assert name_in("older<br/>" + ids.replace("\n", "<br/>")) == "older"
    assert name_in(f"\n{ids}") is None
    assert name_in("count at script.py:5") is None
