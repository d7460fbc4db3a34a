"""A SQL server: its queries and relations, statements, and what a user of the console may run there.

The console is one client of the server, with its own login. So it checks each statement by the role that its
user has in the console, with the server's own rules; what the console's login may do, the server decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, closing
from typing import Any

from penstock.admin.failure import CommandFailed
from penstock.console.reads.topics import is_of_servers
from penstock.console.settings import SqlSettings
from penstock.sql.errors import NotAllowed, Place
from penstock.sql.language.parser import parse
from penstock.sql.language.statements import (
    CreateRelation,
    Drop,
    Explain,
    InsertQuery,
    InsertValues,
    Query,
    Select,
    SetProperty,
    Statement,
)
from penstock.sql.server.script import check_role, check_setting_role
from penstock.sql.shell.client import AsyncSession, Line, Session
from penstock.web.access import Principal, Role

_SECONDS = 10.0


class SqlServer:
    """The server at `settings.url`, with the console's own login."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings

    @property
    def url(self) -> str:
        return self._settings.url

    def _login(self) -> dict[str, Any]:
        return {"user": self._settings.user, "ca": self._settings.ca, "option": "--sql"}

    def ask(self, path: str) -> Any:
        """A GET. CommandFailed has the server's message if it refuses."""
        with closing(Session(self.url, **self._login())) as session:
            found = session.ask(path, _SECONDS)
        if isinstance(found, dict) and "error" in found and "message" in found:
            raise CommandFailed(str(found["message"]))
        return found

    def queries(self) -> list[dict[str, Any]]:
        found = self.ask("/queries")
        return found if isinstance(found, list) else []

    def relations(self) -> dict[str, Any]:
        found = self.ask("/relations")
        return found if isinstance(found, dict) else {}

    def execute(self, statement: str) -> str:
        """One statement that changes something; the server's message. CommandFailed if it fails."""
        message = ""
        with closing(Session(self.url, **self._login())) as session, session.run(statement) as lines:
            for line in lines:
                if "error" in line:
                    raise CommandFailed(str(line.get("message")))
                message = str(line.get("done", message))
        return message

    def run(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> tuple[AsyncSession, AbstractAsyncContextManager[AsyncIterator[Line]]]:
        """The session, which keeps what SET and DEFINE give, and the lines of the answer."""
        session = AsyncSession(self.url, dict(properties), dict(variables), **self._login())
        return session, session.run(text)


def server_of(server: SqlServer | None) -> SqlServer:
    if server is None:
        raise CommandFailed("this console has no SQL server: start it with --sql URL.")
    return server


def check_text(
    principal: Principal,
    text: str,
    relations: Mapping[str, str | None],
    properties: Mapping[str, str],
    variables: Mapping[str, str],
) -> list[Statement]:
    """The statements of a text, all of which the user may run; SqlError says which not, and where.

    `relations` are the topics of streams and tables by their names in lower case.
    """
    statements = parse(text, variables)
    check_setting_role(properties, principal)
    for statement in statements:
        place = Place.of(statement.text, statement.span[0])
        check_role(statement, principal)
        if isinstance(statement, SetProperty):
            check_setting_role([statement.name], principal, place)
        if principal.role is Role.ADMIN:
            continue
        if isinstance(statement, Drop) and statement.delete_topic:
            raise NotAllowed(f"user '{principal.name}' needs the role admin to delete a topic", place)
        for name in _names(statement):
            topic = relations.get(name.casefold()) or name
            if is_of_servers(topic):
                raise NotAllowed(
                    f"user '{principal.name}' needs the role admin: `{topic}` holds the state of servers",
                    place,
                )
    return statements


def _names(statement: Statement) -> list[str]:
    """The relations and topics whose records a statement reads or writes."""
    if isinstance(statement, Explain):
        return [] if statement.statement is None else _names(statement.statement)
    found: list[str] = []
    query: Query | None = None
    if isinstance(statement, Select):
        query = statement.query
    elif isinstance(statement, InsertQuery):
        query, found = statement.query, [statement.target]
    elif isinstance(statement, InsertValues):
        found = [statement.target]
    elif isinstance(statement, CreateRelation):
        query = statement.query
        options = statement.options
        found = [options.get("topic", statement.name), options.get("dead_letter_topic", "")]
    return [*found, *(source.name for source in (query.sources if query is not None else ()))]


def topics_of(relations: Mapping[str, Any]) -> dict[str, str | None]:
    """The topic of each stream and table, by its name in lower case; None for those in files."""
    found = relations.get("relations", [])
    return {str(each["name"]).casefold(): each.get("topic") for each in found}
