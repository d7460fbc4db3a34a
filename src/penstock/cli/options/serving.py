"""Options of commands that serve HTTP for a cluster, in groups of servers with a leader."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.options.shared import FILE, Options, options
from penstock.web.log_output import FORMS, VARIABLE


def _log_as(context: click.Context, parameter: click.Parameter, form: str | None) -> None:
    if form is not None:
        os.environ[VARIABLE] = form  # child processes use the same log format


def log_format_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--log-format`, for long-running commands."""
    return click.option(
        "--log-format",
        type=click.Choice(FORMS),
        envvar=VARIABLE,
        show_envvar=True,
        expose_value=False,
        callback=_log_as,
        help="How to log: lines of text, or a JSON object in each line.  [default: text]",
    )(command)


def access_options(what: str, others: str) -> Options:
    """Users and TLS; `access_of` converts the given options to settings."""
    return options(
        click.option(
            "--auth-file",
            metavar="FILE",
            type=FILE,
            help="File of users, one per line: `name: password, role`; see `penstock users hash`.",
        ),
        click.option(
            "--jwks",
            metavar="FILE|URL",
            help="Accept bearer tokens (JWT) signed with one of these keys.",
        ),
        click.option("--jwt-issuer", metavar="TEXT", help="Only tokens of this issuer."),
        click.option(
            "--jwt-audience",
            metavar="TEXT",
            multiple=True,
            help="Only tokens for one of these (repeatable).",
        ),
        click.option(
            "--jwt-roles-claim",
            metavar="NAME",
            default="roles",
            show_default=True,
            help="The token's claim with the role: read, write or admin.",
        ),
        click.option(
            "--max-request-rate",
            metavar="N",
            type=click.FloatRange(min=0),
            default=0.0,
            help="Requests a second of one user, or of one address without logins.  [default: no limit]",
        ),
        click.option(
            "--tls-cert", metavar="FILE", type=FILE, help=f"The certificate of the {what}, PEM: serve HTTPS."
        ),
        click.option("--tls-key", metavar="FILE", type=FILE, help="The key of the certificate."),
        click.option(
            "--tls-ca", metavar="FILE", type=FILE, help=f"The authority of the other {others}, PEM."
        ),
    )


def access_of(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of these options, which are removed from `given`."""
    from penstock.web.access import AccessSettings

    certificate, key = given.pop("tls_cert"), given.pop("tls_key")
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    jwks, issuer, audience = given.pop("jwks"), given.pop("jwt_issuer"), given.pop("jwt_audience")
    if jwks is None and (issuer or audience):
        raise click.UsageError("--jwt-issuer and --jwt-audience require --jwks")
    access = AccessSettings(
        users_file=given.pop("auth_file"),
        jwks=jwks,
        issuer=issuer,
        audience=audience,
        roles_claim=given.pop("jwt_roles_claim"),
        rate=given.pop("max_request_rate"),
    )
    return {
        "access": access,
        "tls_certificate": certificate,
        "tls_key": key,
        "tls_ca": given.pop("tls_ca"),
    }


def serving_options(
    *, what: str, others: str, of_one: str, topic: str, port: int, group: str, ready: str
) -> Options:
    """Listening address, and how it finds the other servers of its group.

    what     it is: "registry" others   the same in the plural of_one   what the others share: "topic" topic
    that is made if it does not exist ready    what the ready file says, and when
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
        log_format_option,
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
            help=f"A name under which clients reach this {what}, in addition to localhost, its address and "
            "the advertised one: NAME, *.NAME, or * for any (repeatable).",
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
            help=f"Of {topic} if it is created: at most the number of brokers.",
        ),
        click.option(
            "--session-timeout-ms",
            metavar="N",
            type=click.IntRange(1000),
            default=10_000,
            show_default=True,
            help="After how long without a heartbeat a leader counts as dead.",
        ),
        click.option(
            "--max-body-bytes",
            metavar="N",
            type=click.IntRange(1024),
            default=4 << 20,
            show_default=True,
            help="The largest request body that is accepted.",
        ),
        access_options(what, others),
        click.option(
            "--ready-file",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help=f"Written as JSON {ready}.",
        ),
    )
