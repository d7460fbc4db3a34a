"""How commands reach a schema registry: the options, and its errors as lines for the user."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import FILE, Options, options
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.registry.client import RegistryClient

DEFAULT_REGISTRY = "http://127.0.0.1:8081"
LEVELS = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip


class RegistryAt:
    """A registry that is connected to when it is first needed."""

    def __init__(
        self, url: str, user: str | None, ca: str | None, cert: str | None, key: str | None, timeout: float
    ) -> None:
        self.url = url
        self.user = user
        self._rest = (user, ca, cert, key, timeout)

    @contextmanager
    def client(self) -> Iterator[RegistryClient]:
        """Its client; what goes wrong with the registry in the block is a CommandFailed."""
        from penstock.registry.client import RegistryClient, RegistrySettings

        user, ca, cert, key, timeout = self._rest
        with explained():
            client = RegistryClient(RegistrySettings(self.url, user, ca, cert, key, timeout))
        try:
            with explained():
                yield client
        finally:
            client.close()


@contextmanager
def explained() -> Iterator[None]:
    """Errors of the registry and of schemas as one line each."""
    from penstock.registry.client import Unreachable

    try:
        yield
    except Unreachable as error:
        raise CommandFailed(
            f"{error}. Start one with `penstock up` or `penstock registry`, or name another with --registry."
        ) from error
    except PenstockError as error:
        raise CommandFailed(f"{str(error).rstrip('.')}.") from error


def registry_address(what: str) -> Options:
    """Which registry, and how to reach it; `what` says more of it."""
    return options(
        click.option(
            "--registry",
            "-r",
            metavar="URL",
            envvar="PENSTOCK_REGISTRY",
            show_envvar=True,
            default=DEFAULT_REGISTRY,
            show_default=True,
            help=what,
        ),
        click.option(
            "--registry-user",
            metavar="NAME:PASSWORD",
            envvar="PENSTOCK_REGISTRY_USER",
            show_envvar=True,
            help="User and password for the schema registry.",
        ),
        click.option(
            "--registry-ca",
            metavar="FILE",
            type=FILE,
            envvar="PENSTOCK_REGISTRY_CA",
            show_envvar=True,
            help="PEM: the certificate authority of the registry.",
        ),
        click.option("--registry-cert", metavar="FILE", type=FILE, help="PEM: the client certificate."),
        click.option("--registry-key", metavar="FILE", type=FILE, help="Its key."),
    )


def registry_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command gets `registry`, a RegistryAt, in place of the options."""
    return _with_registry(command, own_timeout=True)


def registry_options_of_clients(command: Callable[..., None]) -> Callable[..., None]:
    """The same for commands that talk to a cluster, whose --timeout counts for both."""
    return _with_registry(command, own_timeout=False)


def _with_registry(command: Callable[..., None], *, own_timeout: bool) -> Callable[..., None]:
    @functools.wraps(command)
    def with_registry(
        *args: Any,
        registry: str,
        registry_user: str | None,
        registry_ca: str | None,
        registry_cert: str | None,
        registry_key: str | None,
        **kwargs: Any,
    ) -> None:
        timeout: float = kwargs.pop("timeout") if own_timeout else kwargs["timeout"]
        if registry_key is not None and registry_cert is None:
            raise click.UsageError("--registry-key requires --registry-cert")
        place = RegistryAt(registry, registry_user, registry_ca, registry_cert, registry_key, timeout)
        command(*args, registry=place, **kwargs)

    decorated = with_registry
    if own_timeout:
        decorated = click.option(
            "--timeout",
            metavar="SECONDS",
            type=click.FloatRange(min=0.1),
            default=30.0,
            show_default=True,
            help="How long to wait for an answer.",
        )(decorated)
    which = "A schema registry with Confluent's API, or several of one group with commas."
    return registry_address(which)(decorated)
