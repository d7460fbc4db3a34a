"""`penstock mirror`: replication between two Kafka clusters, without writing connector configurations."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from penstock.cli.connect.commands import ask
from penstock.cli.failure import CommandFailed, needs_extra
from penstock.cli.options.properties import key_values, read_properties, resolved
from penstock.cli.options.shared import FILE, address_options, client_of, json_option
from penstock.cli.output import emit_json, table
from penstock.config.properties import parse_properties
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.up.companion import Companion
    from penstock.connect.connectors.mirror.flows import Flow


@click.group(invoke_without_command=True)
@click.option("--source", metavar="HOST:PORT", help="A broker of the cluster to replicate from.")
@click.option("--target", metavar="HOST:PORT", help="A broker of the cluster to replicate to.")
@click.option("--source-alias", default="source", show_default=True, help="The name of the source cluster.")
@click.option("--target-alias", default="target", show_default=True, help="The name of the target cluster.")
@click.option(
    "--source-config",
    metavar="FILE",
    type=FILE,
    help="A .properties file for clients of the source (TLS, SASL).",
)
@click.option(
    "--target-config",
    metavar="FILE",
    type=FILE,
    help="A .properties file for clients of the target (TLS, SASL).",
)
@click.option(
    "--topics",
    metavar="NAMES",
    help="Topics to replicate: names and regular expressions, separated by commas.  [default: all]",
)
@click.option("--groups", metavar="NAMES", help="Groups whose offsets are replicated.  [default: all]")
@click.option("--keep-names", is_flag=True, help="Topics keep their names (IdentityReplicationPolicy).")
@click.option("--both-ways", is_flag=True, help="Replicate from the target to the source, too.")
@click.option(
    "--sync-group-offsets", is_flag=True, help="Commit translated offsets in the target for idle groups."
)
@click.option("--no-heartbeats", is_flag=True, help="Write no heartbeats, and nothing to the source.")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=FILE,
    help="A .properties file as connect-mirror-maker.sh takes it, with any number of clusters.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting by MirrorMaker 2's name, such as tasks.max=4 (repeatable).",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the workers listen.")
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (flows, each with source, target and connect) when the connectors are created.",
)
@json_option
@click.pass_context
def mirror(
    context: click.Context,
    /,
    config_file: str | None,
    settings: tuple[str, ...],
    host: str,
    ready_file: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replicate topics and group offsets between Kafka clusters.

    Topics are replicated with their settings and ACLs, as by MirrorMaker 2. It runs until Ctrl-C or SIGTERM.
    Records are replicated exactly once; after a stop or a crash it continues where it was. Each direction is
    a Connect worker on its target cluster with MirrorSourceConnector, MirrorCheckpointConnector and
    MirrorHeartbeatConnector. Start it on several machines, with --host, and they share the work.

    \b
      penstock mirror --source east-1:9092 --target west-1:9092 --source-alias east --topics 'orders, pay.*'
      penstock mirror --config mm2.properties
    """
    if context.invoked_subcommand is not None:
        return
    with needs_extra("replication", "connect"):
        from penstock.connect.connectors.mirror.flows import BadFlows, flows, unknown_names
    properties = _from_file(config_file) if config_file else _from_options(**given)
    properties |= key_values(settings, "--set")
    for name in unknown_names(properties):
        click.echo(f"Warning: unknown setting {name}", err=True)
    try:
        planned = flows(properties)
    except BadFlows as error:
        raise click.UsageError(str(error)) from error

    def announce(ready: dict[str, Any]) -> None:
        if ready_file is not None:
            from penstock.elected.process import write_ready

            write_ready(ready_file, ready)
        if as_json:
            emit_json(ready)
            return
        for flow in ready["flows"]:
            names = ", ".join(flow["connectors"])
            click.echo(f"{flow['source']} -> {flow['target']}: {names} at {flow['connect']}")

    try:
        with tempfile.TemporaryDirectory(prefix="penstock-mirror-") as directory:
            asyncio.run(_run(planned, host, Path(directory), announce))
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    finally:
        if ready_file is not None and os.path.exists(ready_file):
            os.unlink(ready_file)


def _from_file(path: str) -> dict[str, str]:
    """References to secrets stay: only the connectors' processes resolve them."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"cannot read {path}: {error}") from error


def _from_options(
    *,
    source: str | None,
    target: str | None,
    source_alias: str,
    target_alias: str,
    source_config: str | None,
    target_config: str | None,
    topics: str | None,
    groups: str | None,
    keep_names: bool,
    both_ways: bool,
    sync_group_offsets: bool,
    no_heartbeats: bool,
) -> dict[str, str]:
    if source is None or target is None:
        raise click.UsageError("give --source and --target, or --config with a MirrorMaker 2 file")
    if source_alias == target_alias:
        raise click.UsageError(f"--source-alias and --target-alias are both '{source_alias}'")
    if keep_names and both_ways:
        raise click.UsageError("--keep-names works in one direction only; two would loop")
    found = {"clusters": f"{source_alias},{target_alias}"}
    for alias, file, bootstrap in (
        (source_alias, source_config, source),
        (target_alias, target_config, target),
    ):
        own = read_properties(file) if file else {}
        found |= {f"{alias}.{name}": value for name, value in own.items()}
        found[f"{alias}.bootstrap.servers"] = bootstrap
    found[f"{source_alias}->{target_alias}.enabled"] = "true"
    if both_ways:
        found[f"{target_alias}->{source_alias}.enabled"] = "true"
    if topics is not None:
        found["topics"] = topics
    if groups is not None:
        found["groups"] = groups
    if keep_names:
        found["replication.policy.class"] = "IdentityReplicationPolicy"
    if sync_group_offsets:
        found["sync.group.offsets.enabled"] = "true"
    if no_heartbeats:
        found["emit.heartbeats.enabled"] = "false"
    return found


async def _run(
    planned: Sequence[Flow], host: str, directory: Path, announce: Callable[[dict[str, Any]], None]
) -> None:
    """A worker for each flow, watched until a signal."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    ready: dict[str, Any] = {"pid": os.getpid(), "flows": []}
    async with AsyncExitStack() as stack:
        workers = [_worker(flow, host, directory) for flow in planned]
        for worker in workers:
            worker.begin()  # all load at the same time
        for flow, worker in zip(planned, workers, strict=True):
            state = {"bootstrap": flow.client["bootstrap.servers"]}
            answer = await stack.enter_async_context(worker.beside(state, stopping))
            if stopping.is_set():
                return
            url = answer["connect"]
            for name, config in flow.connectors.items():
                path = f"/connectors/{quote(name, safe='')}/config"
                await loop.run_in_executor(None, ask, url, "PUT", path, dict(config))
            ready["flows"].append(
                {
                    "source": flow.source,
                    "target": flow.target,
                    "connect": url,
                    "connectors": [*flow.connectors],
                }
            )
        announce(ready)
        await stopping.wait()


def _worker(flow: Flow, host: str, directory: Path) -> Companion:
    from penstock.cli.up.companion import Companion
    from penstock.client.librdkafka_names import translate

    name = f"{flow.source}-{flow.target}"
    client, worker = directory / f"{name}.client", directory / f"{name}.worker"
    # In files, which nobody else can read: a command line shows to every user of the machine.
    _write(client, translate(resolved(flow.client)))
    _write(worker, flow.worker)

    def command(ready: dict[str, Any] | None) -> list[str]:
        port = "0" if ready is None else ready["connect"].rpartition(":")[2]
        words = ["connect", "--from-parent", "--json", "--host", host, "--port", port]
        words += ["--client-config", str(client), "--config", str(worker)]
        return [sys.executable, "-m", "penstock", *words]

    return Companion(f"worker {flow.source} -> {flow.target}", "connect", command, early=False)


def _write(path: Path, settings: Mapping[str, str]) -> None:
    path.touch(mode=0o600)
    lines = (f"{name}={_escaped(value)}\n" for name, value in settings.items())
    path.write_text("".join(lines), encoding="utf-8")


def _escaped(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return f"\\{value}" if value.startswith(" ") else value


@mirror.command()
@click.argument("group")
@address_options("librdkafka")
@click.option("--source-alias", default="source", show_default=True, help="The name of the source cluster.")
@json_option
def offsets(
    group: str,
    bootstrap: str,
    client_config: str | None,
    client_settings: tuple[str, ...],
    source_alias: str,
    as_json: bool,
) -> None:
    """Show where a group of the source cluster would continue in this one, the target.

    It reads the checkpoints, as RemoteClusterUtils.translateOffsets does in Java.

    \b
      penstock mirror offsets billing -b west-1:9092 --source-alias east
    """
    from penstock.client import ClientSettings, Cluster
    from penstock.client.settings import kafka_names
    from penstock.connect.connectors.mirror.checkpoints import read_checkpoints
    from penstock.connect.connectors.mirror.policy import ReplicationPolicy

    bootstrap, client = client_of(bootstrap, client_config, client_settings)
    topic = ReplicationPolicy(source_alias).checkpoints_topic()
    try:
        settings = ClientSettings.from_kafka({**kafka_names(client), "bootstrap.servers": bootstrap})
        with Cluster(settings) as cluster:
            known = read_checkpoints(cluster, topic).get(group)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if known is None:
        raise CommandFailed(
            f"no checkpoint of group '{group}' in {topic} at {bootstrap}. Check --source-alias, and that "
            "MirrorCheckpointConnector replicates this group."
        )
    rows = [
        (each.topic, each.partition, each.upstream_offset, each.downstream_offset)
        for _, each in sorted(known.items())
    ]
    names = ["topic", "partition", "source-offset", "offset"]
    if as_json:
        emit_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        table(names, rows)
