"""Every route of the API: its path, parameters and handler. The OpenAPI page is generated from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.registry.http import schemas, settings, subjects
from penstock.registry.http.call import Answer, Call
from penstock.web.access import Role

Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `query` names its parameters; those that are numbers end in `#`."""

    method: str
    path: str
    summary: str
    handler: Handler
    query: tuple[str, ...] = ()
    body: str = ""

    @property
    def role(self) -> Role:
        """The required role: `read`, `write` to change schemas, `admin` for settings that affect all of
        them.
        """
        if self.method == "GET" or self.handler in _READING:
            return Role.READ
        return Role.ADMIN if self.path in _ADMINISTRATION else Role.WRITE

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(part for part in self.path.split("/") if part)


PAGE = ("offset#", "limit#")
_READING = (settings.root, subjects.look_up, schemas.compatible_with_version, schemas.compatible_with_all)
_ADMINISTRATION = ("/config", "/mode", "/mode/{subject}", "/contexts/{context}")

ROUTES = (
    Route("GET", "/", "Whether the registry answers.", settings.root),
    Route("POST", "/", "Whether the registry takes bodies.", settings.root),
    Route("GET", "/subjects", "List subjects.", subjects.listing,
          ("subjectPrefix", "deleted", "deletedOnly", *PAGE)),
    Route("POST", "/subjects/{subject}", "Look a schema up under a subject.", subjects.look_up,
          ("normalize", "format", "deleted"), "schema"),
    Route("DELETE", "/subjects/{subject}", "Delete a subject.", subjects.delete, ("permanent",)),
    Route("GET", "/subjects/{subject}/metadata", "The latest version with given metadata.",
          subjects.latest_with_metadata, ("key", "value", "format", "deleted")),
    Route("GET", "/subjects/{subject}/versions", "List the versions of a subject.", subjects.versions,
          ("deleted", "deletedOnly", "deletedAsNegative", *PAGE)),
    Route("POST", "/subjects/{subject}/versions", "Register a schema under a subject.", subjects.register,
          ("normalize", "format", "force"), "schema"),
    Route("GET", "/subjects/{subject}/versions/{version}", "A version of a subject.", subjects.version,
          ("deleted", "format", "referenceFormat")),
    Route("DELETE", "/subjects/{subject}/versions/{version}", "Delete a version.", subjects.delete_version,
          ("permanent",)),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", "The text of a version.",
          subjects.text_of_version, ("deleted", "format")),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby",
          "The ids of schemas that refer to a version.", subjects.referenced_by, ("deleted", *PAGE)),
    Route("GET", "/schemas", "List schemas.", schemas.listing,
          ("subjectPrefix", "aliases", "deleted", "latestOnly", "ruleType", *PAGE)),
    Route("GET", "/schemas/types", "The supported schema types.", schemas.types),
    Route("GET", "/schemas/ids/{id}", "The schema of an id.", schemas.by_id,
          ("subject", "format", "referenceFormat", "fetchMaxId")),
    Route("GET", "/schemas/ids/{id}/schema", "The text of an id.", schemas.text_by_id, ("subject", "format")),
    Route("GET", "/schemas/ids/{id}/subjects", "The subjects that have an id.", schemas.subjects_by_id,
          ("subject", "deleted", *PAGE)),
    Route("GET", "/schemas/ids/{id}/versions", "The versions that have an id.", schemas.versions_by_id,
          ("subject", "deleted", *PAGE)),
    Route("GET", "/schemas/guids/{guid}", "The schema of a GUID.", schemas.by_guid, ("format",)),
    Route("GET", "/schemas/guids/{guid}/ids", "The ids of a GUID, by context.", schemas.ids_by_guid),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}",
          "Whether a schema is compatible with a version.", schemas.compatible_with_version,
          ("verbose", "normalize"), "schema"),
    Route("POST", "/compatibility/subjects/{subject}/versions",
          "Whether a schema could be registered.", schemas.compatible_with_all,
          ("verbose", "normalize"), "schema"),
    Route("GET", "/config", "The global configuration.", settings.config, ("defaultToGlobal",)),
    Route("PUT", "/config", "Change the global configuration.", settings.update_config, (), "config"),
    Route("DELETE", "/config", "Take the global configuration back.", settings.delete_config),
    Route("GET", "/config/{subject}", "The configuration of a subject.", settings.config,
          ("defaultToGlobal",)),
    Route("PUT", "/config/{subject}", "Change the configuration of a subject.", settings.update_config,
          (), "config"),
    Route("DELETE", "/config/{subject}", "Take the configuration of a subject back.",
          settings.delete_config),
    Route("GET", "/mode", "The global mode.", settings.mode, ("defaultToGlobal",)),
    Route("PUT", "/mode", "Change the global mode.", settings.update_mode, ("force",), "mode"),
    Route("DELETE", "/mode", "Take the global mode back.", settings.delete_mode, ("recursive",)),
    Route("GET", "/mode/{subject}", "The mode of a subject.", settings.mode, ("defaultToGlobal",)),
    Route("PUT", "/mode/{subject}", "Change the mode of a subject.", settings.update_mode,
          ("force",), "mode"),
    Route("DELETE", "/mode/{subject}", "Take the mode of a subject back.", settings.delete_mode,
          ("recursive",)),
    Route("GET", "/contexts", "List contexts.", settings.contexts, ("contextPrefix", *PAGE)),
    Route("DELETE", "/contexts/{context}", "Delete an empty context.", settings.delete_context),
    Route("GET", "/v1/metadata/id", "The clusters that this registry belongs to.", settings.cluster_id),
    Route("GET", "/v1/metadata/deployment", "Attributes of this deployment: none.", settings.deployment),
    Route("GET", "/v1/metadata/version", "The version of this registry.", settings.server_version),
)  # fmt: skip


class Router:
    """Finds the route of a path by its segments."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        for route in routes:
            places = self._by_length.setdefault(len(route.segments), [])
            for segments, methods in places:
                if segments == route.segments:
                    methods[route.method] = route
                    break
            else:
                places.append((route.segments, {route.method: route}))

    def find(self, segments: tuple[str, ...]) -> tuple[dict[str, Route], dict[str, str]] | None:
        """The methods of the path and the values in it; None for an unknown path."""
        for pattern, methods in self._by_length.get(len(segments), ()):
            values: dict[str, str] = {}
            for expected, found in zip(pattern, segments):
                if expected[0] == "{":
                    values[expected[1:-1]] = found
                elif expected != found:
                    break
            else:
                return methods, values
        return None
