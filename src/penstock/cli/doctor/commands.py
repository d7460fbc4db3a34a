"""`penstock doctor`: its commands. Exit codes: 0 healthy, 1 problems (warnings are none), 2 wrong usage."""

from __future__ import annotations

import os

import click

from penstock.admin.cluster import Cluster
from penstock.cli.doctor.findings import report
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, json_option


@click.group()
def doctor() -> None:
    """Find out what is wrong with a cluster, data directory or Spark.

    Each finding says what to do. Nothing is changed. Exits with 1 when there is a problem; warnings do not
    count.
    """


@doctor.command("cluster")
@click.option(
    "--watch",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="How long a group that is behind may commit nothing.",
)
@click.option(
    "--transactions-older-than",
    "older",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=900.0,
    show_default=True,
    help="Only look at transactions whose last record is older.",
)
@click.option(
    "--clock-skew",
    "skew",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How far in the future a record's time may be.",
)
@json_option
@cluster_options
def check_cluster(seconds: float, older: float, skew: float, as_json: bool, cluster: Cluster) -> None:
    """Check a running cluster: listeners, replicas, clocks, hanging transactions, groups without progress.

    \b
      penstock doctor cluster
    """
    from penstock.admin.doctor import cluster as checks

    report(*checks.check_cluster(cluster, watch=seconds, older=older, skew=skew), as_json)


@doctor.command("data")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--min-free",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    default=10.0,
    show_default=True,
    help="How much of the disk must be free.",
)
@json_option
def check_data(directory: str, min_free: float, as_json: bool) -> None:
    """Check DIR, a broker's data directory: every file of its logs, and the room on its disk.

    \b
      penstock doctor data data --min-free 20
    """
    from penstock.cli.doctor import data as checks
    from penstock.log.tools.verify import NotALogDirectory

    try:
        found = [*checks.files(directory), *checks.disk(directory, min_free)]
    except NotALogDirectory as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise CommandFailed(str(error)) from error
    report(checks.CHECKS, found, as_json)


@doctor.command("spark")
@json_option
def check_spark(as_json: bool) -> None:
    """Check what Spark needs on this machine: Java, and PySpark in a supported version.

    \b
      penstock doctor spark
    """
    from penstock.cli.doctor import spark_setup as checks

    report(checks.CHECKS, [*checks.java(os.environ), *checks.pyspark()], as_json)
