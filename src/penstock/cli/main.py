"""The `penstock` command: the tree of subcommands, and the exit codes.

Subcommands are imported on demand, so that `penstock --help` and `penstock broker` start quickly.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from penstock.cli.failure import FAILED, INTERRUPTED, OK, USAGE, did_you_mean

EPILOG = (
    "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 130 interrupted. "
    "Data goes to stdout, everything else to stderr."
)

PROGRAM = "penstock"
COMPLETION_VARIABLE = "_PENSTOCK_COMPLETE"

# name: (module, attribute, the line in --help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("penstock.cli.up.commands", "up", "Start Penstock on this machine."),
    "demo": ("penstock.cli.demo", "demo", "Stream real flights through Penstock and Spark."),
    "broker": ("penstock.cli.broker", "broker", "Run one broker with Kafka-named settings."),
    "registry": (
        "penstock.cli.schemas.serve",
        "registry",
        "Run a schema registry with Confluent's REST API.",
    ),
    "schemas": (
        "penstock.cli.schemas.commands",
        "schemas",
        "Show, register, compare, export and import schemas.",
    ),
    "connect": (
        "penstock.cli.connect.commands",
        "connect",
        "Run a Connect worker, or manage the connectors of one.",
    ),
    "mirror": (
        "penstock.cli.connect.mirror",
        "mirror",
        "Replicate topics and group offsets between Kafka clusters.",
    ),
    "console": ("penstock.cli.console.serve", "console", "Run the web console of a Kafka cluster."),
    "zookeeper": ("penstock.cli.zookeeper", "zookeeper", "Run ZooKeeper, which holds the metadata."),
    "topics": ("penstock.cli.topics.commands", "topics", "Create, list, describe, alter and delete topics."),
    "configs": ("penstock.cli.topics.configs", "configs", "Show and change settings of topics and brokers."),
    "produce": ("penstock.cli.records.produce", "produce", "Write records to a topic."),
    "consume": ("penstock.cli.records.consume", "consume", "Read records of a topic."),
    "records": (
        "penstock.cli.records.files",
        "records",
        "Export records to files, import files, replay records into a topic.",
    ),
    "offsets": ("penstock.cli.topics.offsets", "offsets", "Show a topic's offsets, also by time."),
    "groups": (
        "penstock.cli.groups.commands",
        "groups",
        "List, describe, reset and delete groups; show their lag.",
    ),
    "transactions": (
        "penstock.cli.transactions.commands",
        "transactions",
        "List, describe and abort transactions.",
    ),
    "cluster": (
        "penstock.cli.cluster.commands",
        "cluster",
        "Describe the cluster, move partitions, elect leaders.",
    ),
    "users": (
        "penstock.cli.access.users",
        "users",
        "Add, list and delete users that log in with a password (SCRAM).",
    ),
    "acls": ("penstock.cli.access.acls", "acls", "List, add and delete ACLs: who may do what."),
    "quotas": ("penstock.cli.access.quotas", "quotas", "List and change the quotas of clients."),
    "clients": (
        "penstock.cli.clients",
        "clients",
        "Show the metrics that clients push (KIP-714), and choose which.",
    ),
    "certs": (
        "penstock.cli.access.certs",
        "certs",
        "Create a test authority and certificates, as PEM files.",
    ),
    "audit": (
        "penstock.cli.access.audit",
        "audit",
        "Show denied and administrative requests, and failed logins.",
    ),
    "pipeline": ("penstock.cli.pipelines.commands", "pipeline", "Run Spark pipelines, once or continuously."),
    "sql": ("penstock.cli.sql", "sql", "Query topics in SQL, continuously or once."),
    "mcp": (
        "penstock.cli.mcp",
        "mcp",
        "Let language models look at a cluster, through the Model Context Protocol.",
    ),
    "doctor": (
        "penstock.cli.doctor.commands",
        "doctor",
        "Find out what is wrong with a cluster, data directory or Spark.",
    ),
    "backup": (
        "penstock.cli.backup",
        "backup",
        "Back up a broker's data directories, or the metadata of a cluster.",
    ),
    "restore": ("penstock.cli.backup", "restore", "Restore a backup."),
    "log": ("penstock.cli.log", "log", "Show and check the files of a log."),
    "bench": ("penstock.cli.bench", "bench", "Measure a cluster's rates and latencies."),
    "completion": ("penstock.cli.completion", "completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; their help lines are in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no command '{args[0]}'.{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from penstock import __version__

        click.echo(f"penstock {__version__}")
        context.exit(OK)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["--help", "-h"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version."
)
def cli() -> None:
    """Penstock: a streaming platform that speaks Apache Kafka's protocol.

    `penstock up` starts it; the other commands work with any Kafka cluster (--bootstrap).
    """


def run(arguments: list[str] | None = None) -> int:
    """Runs one command line and returns its exit code. User errors never show a stack trace."""
    if COMPLETION_VARIABLE in os.environ:
        cli.main(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
    try:
        # Not cli.main: that turns a broken pipe into exit code 1.
        with cli.make_context(PROGRAM, list(sys.argv[1:] if arguments is None else arguments)) as context:
            cli.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
        return OK
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return OK  # the reader (`| head`) has closed the pipe
    except UnicodeEncodeError as error:
        click.echo(f"Error: not text in UTF-8: {error.object[:80]!r}", err=True)
        return USAGE
    except OSError as error:
        click.echo(f"Error: {error.filename or 'input/output'}: {error.strerror or error}", err=True)
        return FAILED


def main() -> NoReturn:
    """The console script."""
    code = run()
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):
        # Otherwise the interpreter would try to write the rest at exit, and report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)
