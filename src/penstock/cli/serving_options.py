"""Options of commands that serve HTTP for a cluster, several of a kind with one that leads."""

from __future__ import annotations

import click

from penstock.cli.options import Options, options


def serving_options(
    *, what: str, others: str, of_one: str, topic: str, port: int, group: str, ready: str
) -> Options:
    """Where it listens, and how it finds the others of its kind.

    what     it is: "registry"
    others   the same in the plural
    of_one   what the others share: "topic"
    topic    that is made if it is not there
    ready    what the ready file says, and when
    """
    return options(
        click.option(
            "--port",
            metavar="N",
            type=click.IntRange(0, 65535),
            default=port,
            show_default=True,
            help=f"Where the {what} listens; 0 takes any free port.",
        ),
        click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
        click.option(
            "--group",
            default=group,
            show_default=True,
            help=f"The group in which the {others} of one {of_one} choose their leader.",
        ),
        click.option(
            "--advertised-url",
            metavar="URL",
            help=f"How the other {others} reach this one, if not by --host.",
        ),
        click.option(
            "--allow-host",
            "allowed_hosts",
            metavar="NAME",
            multiple=True,
            envvar="PENSTOCK_ALLOW_HOST",
            show_envvar=True,
            help=f"A name under which clients reach this {what}, beside localhost, its address and the "
            "advertised one: NAME, *.NAME, or * for any (repeatable).",
        ),
        click.option(
            "--allow-origin",
            "allowed_origins",
            metavar="ORIGIN",
            multiple=True,
            envvar="PENSTOCK_ALLOW_ORIGIN",
            show_envvar=True,
            help=f"Web pages that may use this {what}: http://host:port, or * for any (repeatable).",
        ),
        click.option(
            "--replication-factor",
            metavar="N",
            type=click.IntRange(1),
            default=3,
            show_default=True,
            help=f"Of {topic} if it is made: at most as many as there are brokers.",
        ),
        click.option(
            "--session-timeout-ms",
            metavar="N",
            type=click.IntRange(1000),
            default=10_000,
            show_default=True,
            help="How long a dead leader is waited for.",
        ),
        click.option(
            "--max-body-bytes",
            metavar="N",
            type=click.IntRange(1024),
            default=4 << 20,
            show_default=True,
            help="The largest request body that is taken.",
        ),
        click.option(
            "--ready-file",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help=f"Written as JSON {ready}.",
        ),
    )
