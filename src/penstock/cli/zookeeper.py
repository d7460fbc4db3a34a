"""`penstock zookeeper`: a ZooKeeper server for a cluster's metadata, alone or as a member of an ensemble."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import FrameType

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json
from penstock.ensemble import Member, ServerSpec, ZooKeeperProcess, free_port
from penstock.errors import PenstockError


@click.group()
def zookeeper() -> None:
    """Run ZooKeeper, which holds the metadata."""


@zookeeper.command()
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("zookeeper"),
    show_default=True,
    help="Where it keeps its data.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=2181,
    show_default=True,
    help="Where clients reach it; 0 takes any free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--id", "member_id", metavar="N", type=click.IntRange(1, 255), help="Which --server this one is."
)
@click.option(
    "--server",
    "servers",
    metavar="ID=HOST:QUORUM:ELECTION:CLIENT",
    multiple=True,
    help="A member of the ensemble with its three ports; once for each member, this one too.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Written as JSON (zookeeper, pid) when it serves.",
)
@json_option
def start(
    data: Path,
    port: int,
    host: str,
    member_id: int | None,
    servers: tuple[str, ...],
    ready_file: Path | None,
    as_json: bool,
) -> None:
    """Run a ZooKeeper server until Ctrl-C.

    Uses the ZooKeeper in the PySpark package, and the Java of this machine.

    \b
      penstock zookeeper start --data /var/lib/zk
      penstock broker --set zookeeper.connect=127.0.0.1:2181 --set node.id=1
    """
    members = tuple(map(_member, servers))
    if members:
        own = [one for one in members if one.id == member_id]
        if len(own) != 1:
            raise click.UsageError("--id must match one of the --server ids")
        spec = ServerSpec(data.absolute(), own[0].client_port, own[0].host, own[0].id, members)
    else:
        spec = ServerSpec(data.absolute(), port or free_port(host), host, member_id or 1)
    process = ZooKeeperProcess(spec)

    def stop(number: int, frame: FrameType | None) -> None:
        process.signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        process.start()
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    state = {"zookeeper": process.address, "pid": process.pid}
    if ready_file is not None:
        beside = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
        beside.write_text(json.dumps(state) + "\n", encoding="utf-8")
        os.replace(beside, ready_file)
    if as_json:
        emit_json(state)
    else:
        click.echo(f"ZooKeeper serves at {process.address} (process {process.pid}). Ctrl-C stops it.")
    code = process.wait()
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    if code not in (0, 143, -signal.SIGTERM):
        raise click.exceptions.Exit(FAILED)


def _member(text: str) -> Member:
    number, _, rest = text.partition("=")
    parts = rest.rsplit(":", 3)
    if len(parts) == 4 and number.isdigit() and all(part.isdigit() for part in parts[1:]):
        quorum, election, client = map(int, parts[1:])
        return Member(int(number), parts[0], quorum, election, client)
    raise click.UsageError(
        f"--server {text!r}: write ID=HOST:QUORUM:ELECTION:CLIENT, 1=127.0.0.1:2888:3888:2181"
    )
