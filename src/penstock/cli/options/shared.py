"""Options and arguments that many commands share, and their shell completion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from penstock.admin.cluster import Cluster, kafka_exception
from penstock.cli.failure import CommandFailed
from penstock.cli.options.properties import key_values, read_properties, resolved

F = TypeVar("F", bound=Callable[..., Any])
Options = Callable[[Callable[..., None]], Callable[..., None]]
"""What gives a command options."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
FILE = click.Path(exists=True, dir_okay=False)
_COMPLETION_TIMEOUT = 1.0


def json_option(command: F) -> F:
    """`--json`, passed to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def options(*options: Options) -> Options:
    """Applies all of these options, in the order of the command's help."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def address_options(kind: str) -> Options:
    """Options for the connection to the cluster, with such settings; `client_of` evaluates them."""
    return options(
        click.option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            envvar="PENSTOCK_BOOTSTRAP",
            show_envvar=True,
            default=DEFAULT_BOOTSTRAP,
            show_default=True,
            help="A broker of the cluster, or several with commas.",
        ),
        click.option(
            "--client-config",
            metavar="FILE",
            type=FILE,
            envvar="PENSTOCK_CLIENT_CONFIG",
            show_envvar=True,
            help=f"A .properties file of {kind} settings (TLS, SASL).",
        ),
        click.option(
            "-X", "client_settings", metavar="KEY=VALUE", multiple=True, help=f"One {kind} setting."
        ),
    )


def client_of(
    bootstrap: str, client_config: str | None, client_settings: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """The bootstrap servers and the other settings: -X overrides the file, --bootstrap overrides both."""
    settings = read_properties(client_config) if client_config else {}
    settings |= resolved(key_values(client_settings, "-X"))
    named = settings.pop("bootstrap.servers", None)
    source = click.get_current_context().get_parameter_source("bootstrap")
    return named if named is not None and source is ParameterSource.DEFAULT else bootstrap, settings


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options for the connection to the cluster; the command gets `cluster`, a Cluster, instead of them."""

    @functools.wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap: str,
        client_config: str | None,
        client_settings: tuple[str, ...],
        timeout: float,
        verbose: bool,
        **kwargs: Any,
    ) -> None:
        known = client_of(bootstrap, client_config, client_settings)
        cluster = Cluster(*known, timeout=timeout, verbose=verbose)
        try:
            command(*args, cluster=cluster, **kwargs)
        except kafka_exception() as error:
            raise cluster.failure(error, "the client failed") from error

    all_options = options(
        address_options("librdkafka"),
        click.option(
            "--timeout",
            metavar="SECONDS",
            type=click.FloatRange(min=0.1),
            default=10.0,
            show_default=True,
            help="How long to wait for the cluster.",
        ),
        click.option("--verbose", is_flag=True, help="Show librdkafka's log on stderr."),
    )
    return all_options(with_cluster)


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Topic names of the cluster in the command line so far; none if it does not respond quickly."""
    settings: dict[str, str] = {}
    try:
        if context.params.get("client_config"):
            settings = read_properties(context.params["client_config"])
        settings |= resolved(key_values(context.params.get("client_settings") or (), "-X"))
        bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
        names = Cluster(bootstrap, settings, timeout=_COMPLETION_TIMEOUT).topics()
    except (CommandFailed, click.UsageError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_topic_configs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of topic configurations, followed by `=` if a value is expected."""
    from penstock.config import TOPIC_CONFIGS

    ending = "" if context.info_name == "unset" else "="
    return [CompletionItem(name + ending) for name in sorted(TOPIC_CONFIGS) if name.startswith(incomplete)]


topic_argument = click.argument("topic", shell_complete=complete_topics)
