"""`penstock clients`: client metrics (KIP-714), what clients are asked to push and what they pushed."""

from __future__ import annotations

import time
from typing import Any

import click

from penstock.admin import client_metrics
from penstock.admin.cluster import Cluster
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import emit_json, note, table


@click.group()
def clients() -> None:
    """Show the metrics that clients push (KIP-714), and choose which."""


@clients.command("list")
@json_option
@cluster_options
def list_clients(as_json: bool, cluster: Cluster) -> None:
    """List the client instances that have pushed metrics in the last day.

    Clients push what a subscription asks for: see `penstock clients subscribe`.

    \b
      penstock clients list
    """
    found = client_metrics.pushes(cluster)
    if as_json:
        emit_json([{key: one[key] for key in one if key != "metrics"} for one in found])
    elif found:
        columns = ("client instance", "client id", "software", "address", "pushed", "metrics")
        table(columns, [_row(one) for one in found])
    else:
        note("No client has pushed metrics. Subscribe to some: penstock clients subscribe NAME --metrics '*'")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    age = max(0, round(time.time() - one["time_ms"] / 1000))
    pushed = f"{age} s ago" + (", closed" if one["terminating"] else "")
    software = f"{one['software']} {one['version']}"
    return (
        one["client_instance_id"], one["client_id"], software, one["address"], pushed, len(one["metrics"])
    )  # fmt: skip


@clients.command()
@click.argument("client")
@click.option("--metric", "prefix", metavar="PREFIX", default="", help="Only metrics whose name begins so.")
@json_option
@cluster_options
def describe(client: str, prefix: str, as_json: bool, cluster: Cluster) -> None:
    """Show the metrics that CLIENT, a client id or client instance id, pushed last.

    \b
    penstock clients describe my-producer --metric org.apache.kafka.producer.
    """
    found = [
        one
        for one in client_metrics.pushes(cluster)
        if client in (one["client_id"], one["client_instance_id"])
    ]
    if not found:
        raise CommandFailed(f"no client '{client}' has pushed metrics. List them: penstock clients list")
    for one in found:
        one["metrics"] = [each for each in one["metrics"] if each["name"].startswith(prefix)]
    if as_json:
        emit_json(found)
        return
    for one in found:
        click.echo(f"{one['client_id']} ({one['client_instance_id']}), {one['software']} {one['version']}")
        table(
            ("metric", "labels", "value"),
            [(each["name"], _labels(each), f"{each['value']:g}") for each in one["metrics"]],
        )


def _labels(metric: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(metric.get("labels", {}).items()))


@clients.command()
@json_option
@cluster_options
def subscriptions(as_json: bool, cluster: Cluster) -> None:
    """List the subscriptions: which clients push which metrics, and how often.

    \b
      penstock clients subscriptions
    """
    found = client_metrics.subscriptions(cluster)
    if as_json:
        emit_json([{"name": name, **settings} for name, settings in found.items()])
    elif found:
        rows = [
            (name, one["metrics"] or "(none)", one["interval.ms"], one["match"] or "(all clients)")
            for name, one in found.items()
        ]
        table(("name", "metrics", "interval.ms", "match"), rows)
    else:
        note("No subscriptions.")


@clients.command()
@click.argument("name")
@click.option(
    "--metrics", metavar="PREFIXES", help="Prefixes of the names of metrics, comma-separated; '*' for all."
)
@click.option(
    "--interval",
    "interval_ms",
    metavar="MS",
    type=int,
    help="How often clients push. Default: 300000 (5 minutes).",
)
@click.option(
    "--match",
    "matches",
    metavar="KEY=PATTERN",
    multiple=True,
    help="Only clients whose KEY matches (repeatable). Keys: client_id, client_instance_id, "
    "client_software_name, client_software_version, client_source_address, client_source_port. "
    "Default: all clients.",
)
@json_option
@cluster_options
def subscribe(
    name: str,
    metrics: str | None,
    interval_ms: int | None,
    matches: tuple[str, ...],
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Create or change the subscription NAME.

    Clients that connect after the first subscription was created push for it. They apply changes after their
    current interval, 5 minutes without a subscription.

    \b
    penstock clients subscribe all --metrics '*' --interval 10000
    penstock clients subscribe java --metrics org.apache.kafka. --match client_software_name=apache-.*
    """
    changes: dict[str, str | None] = {}
    if metrics is not None:
        changes["metrics"] = metrics
    if interval_ms is not None:
        changes["interval.ms"] = str(interval_ms)
    if matches:
        changes["match"] = ",".join(matches)
    if not changes:
        raise click.UsageError("give at least one of --metrics, --interval and --match")
    client_metrics.alter_subscription(cluster, name, changes)
    _done(as_json, name, "subscribed", f"Subscription {name} is set.")


@clients.command()
@click.argument("name")
@json_option
@cluster_options
def unsubscribe(name: str, as_json: bool, cluster: Cluster) -> None:
    """Delete the subscription NAME.

    \b
      penstock clients unsubscribe producers
    """
    known = client_metrics.subscriptions(cluster)
    if name not in known:
        raise CommandFailed(f"there is no subscription '{name}'. There are: {', '.join(known) or 'none'}.")
    client_metrics.alter_subscription(cluster, name, dict.fromkeys(known[name]))
    _done(as_json, name, "deleted", f"Subscription {name} is deleted.")


def _done(as_json: bool, name: str, what: str, words: str) -> None:
    if as_json:
        emit_json({"subscription": name, "status": what})
    else:
        click.echo(words)
