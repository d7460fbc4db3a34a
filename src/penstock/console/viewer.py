"""The user of a page and their permissions: those of the login's role, fewer in a read-only console.

Every action is checked when it is carried out, not only when its button is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed
from penstock.console.site import Site
from penstock.web.access import Principal, Role, allows, principal_of


class NotAllowed(CommandFailed):
    """The role does not allow the action, or the console is read-only."""


def _no_cluster() -> Cluster:
    raise CommandFailed("this page is not connected to a cluster.")


@dataclass(frozen=True, slots=True)
class Viewer:
    principal: Principal
    read_only: bool
    logged_in: bool
    lasts: Callable[[], bool] = lambda: True
    """Whether the session is still valid: the user may have logged out on another page."""
    connect: Callable[[], Cluster] = _no_cluster

    @property
    def cluster(self) -> Cluster:
        """For the user's actions: its client id names the user."""
        return self.connect()

    @classmethod
    def of(cls, request: Request, site: Site) -> Viewer:
        sessions, headers = site.sessions, list(request.scope["headers"])
        principal = principal_of(request.scope)
        if sessions is None or sessions.principal(headers) is None:
            logged_in = sessions is not None
            return cls(principal, site.settings.read_only, logged_in, connect=lambda: site.cluster)
        return cls(
            principal,
            site.settings.read_only,
            True,
            lambda: sessions.principal(headers) is not None,
            lambda: site.cluster_as(principal.name),
        )

    @property
    def effective(self) -> Principal:
        """The user with the role that this console leaves it."""
        return replace(self.principal, role=Role.READ) if self.read_only else self.principal

    def may(self, role: Role) -> bool:
        if self.read_only and role is not Role.READ:
            return False
        return allows(self.principal, role)

    def require(self, role: Role, action: str) -> None:
        if not self.lasts():
            raise NotAllowed(f"cannot {action}: the session has ended. Log in again.")
        if self.may(role):
            return
        if self.read_only and role is not Role.READ:
            raise NotAllowed(f"cannot {action}: this console is read-only.")
        raise NotAllowed(f"cannot {action}: user '{self.principal.name}' needs the role {role.word}.")
