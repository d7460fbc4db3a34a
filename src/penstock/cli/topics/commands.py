"""`penstock topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from penstock.admin.cluster import EARLIEST, LATEST, Cluster, TopicDescription, admin_types
from penstock.admin.configs import Setting, describe_configs
from penstock.cli.failure import CommandFailed, UnknownTopic
from penstock.cli.options.properties import topic_settings
from penstock.cli.options.shared import cluster_options, complete_topic_configs, complete_topics, json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.results import report_each

MOST_PARTITIONS = 100_000  # as many as librdkafka asks for

names_argument = click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics
)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions",
    "-p",
    metavar="N",
    type=click.IntRange(1, MOST_PARTITIONS),
    help="How many partitions. Default: the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    "-r",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Copies of each partition. Default: the broker's default.replication.factor.",
)
@click.option(
    "--config",
    "-c",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=complete_topic_configs,
    help="A topic setting, such as retention.ms=3600000.",
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic already exists.")
@click.option("--validate-only", is_flag=True, help="Check, and create nothing.")
@json_option
@cluster_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Create topics.

    \b
      penstock topics create orders
      penstock topics create orders payments -p 6 -r 3 -c min.insync.replicas=2
    """
    from confluent_kafka import KafkaError

    settings = topic_settings(configs, "--config")
    new = [
        admin_types().NewTopic(name, partitions or -1, replication_factor or -1, config=settings)
        for name in _unique(names)
    ]
    futures = cluster.admin.create_topics(new, validate_only=validate_only, **_timeouts(cluster))
    done = "valid" if validate_only else "created"
    ignored = {KafkaError.TOPIC_ALREADY_EXISTS: "exists"} if if_not_exists else {}
    report_each(
        futures, done, ignored, as_json, lambda name, error: cluster.failure(error, f"cannot create '{name}'")
    )


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also Kafka's internal topics (__...).")
@json_option
@cluster_options
def list_topics(internal: bool, as_json: bool, cluster: Cluster) -> None:
    """List topics.

    \b
      penstock topics list --internal
    """
    found = [info for name, info in cluster.topics().items() if internal or not name.startswith("__")]
    if as_json:
        emit_json(
            [
                {"name": i.name, "partitions": len(i.partitions), "replication_factor": i.replication_factor}
                for i in found
            ]
        )
    elif found:
        rows = [(info.name, len(info.partitions), info.replication_factor) for info in found]
        table(("topic", "partitions", "replication"), rows)
    else:
        note("No topics. Create one with `penstock topics create NAME`.")


@topics.command()
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@json_option
@cluster_options
def describe(names: tuple[str, ...], as_json: bool, cluster: Cluster) -> None:
    """Show topics: id, settings that differ from the defaults, partitions, offsets. All, if none is named.

    \b
      penstock topics describe orders
    """
    known = cluster.topics()
    for name in names:
        if name not in known:
            raise UnknownTopic(name, known)
    chosen = [known[name] for name in _unique(names)] or [
        i for i in known.values() if not i.name.startswith("__")
    ]
    described = [_description(cluster, info) for info in chosen]
    if as_json:
        emit_json(described)
        return
    if not described:
        note("No topics. Create one with `penstock topics create NAME`.")
    for topic in described:
        settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "all default"
        title = f"{topic['name']}: id {topic['id']}, settings: {settings}"
        columns = ("partition", "leader", "replicas", "isr", "earliest", "latest")
        rows = [
            (
                p["partition"],
                p["leader"],
                _numbers(p["replicas"]),
                _numbers(p["isr"]),
                p["earliest"],
                p["latest"],
            )
            for p in topic["partitions"]
        ]
        table(columns, rows, title=title)


@topics.command()
@names_argument
@click.option(
    "--partitions",
    "-p",
    metavar="N",
    type=click.IntRange(1, MOST_PARTITIONS),
    required=True,
    help="The new number of partitions.",
)
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@json_option
@cluster_options
def alter(
    names: tuple[str, ...], partitions: int, validate_only: bool, as_json: bool, cluster: Cluster
) -> None:
    """Add partitions to topics. Keys may go to other partitions than before.

    \b
      penstock topics alter orders --partitions 12
    """
    known = cluster.topics()
    for name in names:
        if name not in known:
            raise UnknownTopic(name, known)
    new = [admin_types().NewPartitions(name, partitions) for name in _unique(names)]
    futures = cluster.admin.create_partitions(new, validate_only=validate_only, **_timeouts(cluster))
    done = "valid" if validate_only else "altered"
    report_each(
        futures, done, {}, as_json, lambda name, error: cluster.failure(error, f"cannot alter '{name}'")
    )


@topics.command()
@names_argument
@click.option("--if-exists", is_flag=True, help="Do not fail if the topic does not exist.")
@json_option
@cluster_options
def delete(names: tuple[str, ...], if_exists: bool, as_json: bool, cluster: Cluster) -> None:
    """Delete topics and all their records.

    \b
      penstock topics delete orders
    """
    from confluent_kafka import KafkaError

    futures = cluster.admin.delete_topics(list(_unique(names)), **_timeouts(cluster))
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART

    def explain(name: str, error: KafkaError) -> CommandFailed:
        if error.code() == unknown:
            return UnknownTopic(name, cluster.topics())
        return cluster.failure(error, f"cannot delete '{name}'")

    report_each(futures, "deleted", {unknown: "absent"} if if_exists else {}, as_json, explain)


def _description(cluster: Cluster, info: TopicDescription) -> dict[str, Any]:
    from confluent_kafka import TopicCollection

    future = cluster.admin.describe_topics(TopicCollection([info.name]), request_timeout=cluster.timeout)[
        info.name
    ]
    detail = cluster.wait(future, f"cannot describe '{info.name}'")
    indexes = [partition.index for partition in info.partitions if partition.leader >= 0]
    earliest = cluster.offsets(info.name, indexes, EARLIEST)
    latest = cluster.offsets(info.name, indexes, LATEST)
    overrides: list[Setting] = [
        s for s in describe_configs(cluster, "topic", info.name) if s.source == "topic"
    ]
    return {
        "name": info.name,
        "id": _kafka_id(str(detail.topic_id)),
        "internal": bool(detail.is_internal),
        "replication_factor": info.replication_factor,
        "configs": {setting.name: setting.value for setting in overrides},
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "earliest": earliest[partition.index].offset if partition.index in earliest else None,
                "latest": latest[partition.index].offset if partition.index in latest else None,
            }
            for partition in info.partitions
        ],
    }


def _timeouts(cluster: Cluster) -> dict[str, float]:
    return {"request_timeout": cluster.timeout, "operation_timeout": cluster.timeout}


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _kafka_id(text: str) -> str:
    """Kafka writes ids in the URL-safe alphabet of base64, librdkafka in the other."""
    return text.replace("+", "-").replace("/", "_")


def _numbers(ids: list[int]) -> str:
    return ",".join(map(str, ids))
