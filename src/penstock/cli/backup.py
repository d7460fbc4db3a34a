"""`penstock backup` and `penstock restore`: data directories of a broker, and metadata of a broker or a
cluster.

They work on files and on ZooKeeper, not through a broker. Exit codes: 0 done, 1 it failed or the copy has
problems, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from penstock.admin.words import human_bytes, plural
from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options.properties import key_values, read_properties, resolved
from penstock.cli.options.shared import json_option, options
from penstock.cli.output import emit_json, progress
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.backup.metadata import MetadataBackup
    from penstock.config import BrokerConfig

DIRECTORY = click.Path(exists=True, file_okay=False)

replace_option = click.option(
    "--replace", is_flag=True, help="Delete what is in the target first. Default: the target must be empty."
)
broker_options = options(
    click.option(
        "--config",
        "path",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="The .properties file of one of the brokers: zookeeper.connect, or log.dirs.",
    ),
    click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="A broker setting that overrides the file (repeatable).",
    ),
)


@click.group()
def backup() -> None:
    """Back up a broker's data directories, or the metadata of a cluster.

    For a single broker `penstock backup data` is all: its metadata is in its data directory. For a cluster,
    back up the metadata first, then the data directories of each broker.
    """


@click.group()
def restore() -> None:
    """Restore a backup.

    Stop the brokers first. Existing data is only deleted with --replace.
    """


@backup.command("data")
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=DIRECTORY)
@click.argument("target", metavar="BACKUP", type=click.Path(file_okay=False))
@click.option("--no-verify", is_flag=True, help="Do not check every record of the copy.")
@json_option
def backup_data(directories: tuple[str, ...], target: str, no_verify: bool, as_json: bool) -> None:
    """Copy the data directories of one broker to BACKUP, a new directory.

    DIR... are all of its log.dirs, in their order. The broker may run: it is stopped for a moment
    (SIGSTOP), so that the copy shows one moment, with every record that was acknowledged before. Run the
    command as the broker's user on its machine.

    \b
      penstock backup data /var/lib/penstock /backup/broker-1
    """
    from penstock.backup.data import back_up_data
    from penstock.clock import SystemClock

    with _failures(), _bar("copying", as_json) as started:
        done = back_up_data(directories, target, SystemClock(), check=not no_verify, started=started)
    manifest, report = done.manifest, done.report
    problems = [] if report is None else [one for one in report.all_problems if one.severity == "error"]
    if as_json:
        emit_json(
            {**manifest.as_json(), "backup": target, "problems": [asdict(problem) for problem in problems]}
        )
    else:
        stopped = f", the broker was stopped for {manifest.stopped_ms:.0f} ms" if manifest.running else ""
        click.echo(
            f"{target}: {plural(manifest.partitions, 'partition')}, {human_bytes(manifest.bytes)}, as of "
            f"{manifest.point_in_time}{stopped}"
        )
        for problem in problems:
            click.echo(f"{problem.path}: {problem.what}\n  to do:   {problem.remedy}")
        if report is not None and not problems:
            click.echo("verified: no problems")
    if problems:
        raise click.exceptions.Exit(FAILED)


@backup.command("metadata")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@broker_options
@json_option
def backup_metadata(file: str, path: str | None, settings: tuple[str, ...], as_json: bool) -> None:
    """Write the metadata of a cluster, or of a single broker, to FILE, as JSON.

    Topics with their ids, replicas and settings; settings of brokers and groups; ACLs, quotas, SCRAM users
    and delegation tokens. The brokers may run. FILE holds what passwords are checked against: keep it safe.

    \b
      penstock backup metadata metadata.json --config server.properties
      penstock backup metadata metadata.json --set zookeeper.connect=zk1:2181/penstock
    """
    from penstock.backup.metadata import back_up_metadata
    from penstock.clock import SystemClock

    with _failures():
        saved = back_up_metadata(_broker_config(path, settings), file, SystemClock())
    _show(file, saved, as_json)


@restore.command("data")
@click.argument("source", metavar="BACKUP", type=DIRECTORY)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(file_okay=False))
@replace_option
@json_option
def restore_data(source: str, directories: tuple[str, ...], replace: bool, as_json: bool) -> None:
    """Copy BACKUP to the data directories of a broker.

    DIR... are as many as were backed up, in the order of log.dirs. Run it as the broker's user.

    \b
      penstock restore data /backup/broker-1 /var/lib/penstock
    """
    from penstock.backup.data import restore_data as restore_directories

    with _failures(), _bar("copying", as_json) as started:
        manifest = restore_directories(source, directories, replace=replace, started=started)
    if as_json:
        emit_json({**manifest.as_json(), "restored_to": list(directories)})
    else:
        click.echo(
            f"{', '.join(directories)}: {plural(manifest.partitions, 'partition')}, "
            f"{human_bytes(manifest.bytes)}, as of {manifest.point_in_time}. Start the broker with "
            f"node.id={manifest.node_id}."
        )


@restore.command("metadata")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@broker_options
@replace_option
@json_option
def restore_metadata(
    file: str, path: str | None, settings: tuple[str, ...], replace: bool, as_json: bool
) -> None:
    """Write the metadata of FILE to an empty ZooKeeper, or to the data directory of a single broker.

    Leader epochs and producer ids continue above those that were saved.

    \b
      penstock restore metadata metadata.json --config server.properties
    """
    from penstock.backup.metadata import restore_metadata as restore_store

    with _failures():
        restored = restore_store(_broker_config(path, settings), file, replace=replace)
    _show(file, restored, as_json)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except PenstockError as error:
        raise CommandFailed(str(error)) from error


@contextmanager
def _bar(label: str, as_json: bool) -> Iterator[Callable[[int], Callable[[int], None]]]:
    with progress(label, None, unit="bytes", show=not as_json) as bar:
        yield lambda total: bar.update


def _broker_config(path: str | None, settings: tuple[str, ...]) -> BrokerConfig:
    from penstock.config import BrokerConfig

    values = read_properties(path) if path else {}
    values |= resolved(key_values(settings, "--set"))
    if not values.keys() & {"zookeeper.connect", "log.dirs", "log.dir"}:
        raise click.UsageError(
            "name the broker's settings: --config FILE, or --set with zookeeper.connect or log.dirs"
        )
    return BrokerConfig.parse(values)


def _show(file: str, what: MetadataBackup, as_json: bool) -> None:
    if as_json:
        emit_json({"file": file, **asdict(what)})
        return
    counts = (
        plural(what.topics, "topic"),
        plural(what.partitions, "partition"),
        plural(what.users, "user"),
        plural(what.acls, "ACL"),
        plural(what.quotas, "quota"),
    )
    click.echo(f"{file}: cluster {what.cluster_id}: {', '.join(counts)}")
