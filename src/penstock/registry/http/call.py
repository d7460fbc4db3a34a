"""A request for a handler, and the handler's response.

Paths are split before they are decoded, so that a subject may contain a slash (`%2F`). A request below
`/contexts/{context}` is rewritten: its subjects belong to that context.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from penstock.elected.forwarding import Forwarded
from penstock.registry import subjects
from penstock.registry.bodies import MAX_VERSION
from penstock.registry.errors import BadRequest, invalid_version, unknown_route
from penstock.registry.planning import Plan
from penstock.registry.service import Done, Service

if TYPE_CHECKING:
    from penstock.registry.http.app import RegistryApi

V1_JSON = "application/vnd.schemaregistry.v1+json"
JSON_TYPES = (V1_JSON, "application/vnd.schemaregistry+json", "application/json")
TAKEN_TYPES = (*JSON_TYPES, "application/octet-stream")


@dataclass(slots=True)
class Answer:
    """A response: a value as JSON, or bytes unchanged."""

    value: Any = None
    status: int = 200
    raw: bytes | None = None
    content_type: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def body(self) -> bytes:
        return self.raw if self.raw is not None else dump(self.value)


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class Call:
    """A request: its route, parameters and body."""

    api: RegistryApi
    method: str
    target: str
    segments: tuple[str, ...]
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    path: dict[str, str] = field(default_factory=dict)

    @property
    def service(self) -> Service:
        return self.api.service

    @property
    def full(self) -> bool:
        """Whether the client accepts fields that it may not know."""
        return self.headers.get("confluent-accept-unknown-properties", "").lower() == "true"

    # Parameters, parsed as by Jersey

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        values = self.query.get(name)
        return values[0] if values else default

    def texts(self, name: str) -> list[str]:
        return self.query.get(name, [])

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        return default if not text else _int32(text)

    def page(self, most: int = MAX_VERSION) -> slice:
        """`offset` and `limit`. A limit that is not positive, or above the maximum, becomes the maximum."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        if not 0 < limit <= most:
            limit = most
        return slice(offset, offset + limit)

    def id(self) -> int:
        return _int32(self.path["id"])

    def version(self) -> int:
        """From 1, or -1 for the latest."""
        text = self.path["version"]
        if text.strip().lower() == "latest":
            return -1
        try:
            number = int(text.strip())
        except ValueError:
            raise invalid_version(text) from None
        if not (number == -1 or 1 <= number <= MAX_VERSION) or "_" in text:
            raise invalid_version(text)
        return number

    @property
    def subject(self) -> str:
        return subjects.normalize(self.path["subject"])

    def normalize(self, subject: str) -> bool:
        return self.flag("normalize") or bool(self.service.state.config_in_scope(subject).get("normalize"))

    # Writing

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        return await self.service.in_thread(work)

    async def mutate(
        self, plan: Callable[[], Plan], render: Callable[[Any], Any], *, repeatable: bool = True
    ) -> Answer:
        """Writes here or at the leader. Returns the response for the client."""
        done = await self.service.mutate(plan, self._forwarding(repeatable))
        if isinstance(done, Done):
            headers = []
            if done.offset is not None and "x-forward" in self.headers:
                headers.append((b"x-penstock-offset", str(done.offset).encode()))
            return Answer(render(done.answer), headers=headers)
        if done.offset is not None:
            await self.service.store.applied(done.offset, self.service.write_timeout)
        return Answer(status=done.status, raw=done.body, content_type=done.content_type or None)

    def _forwarding(self, repeatable: bool) -> Callable[[Any, float], Awaitable[Forwarded | None]] | None:
        if "x-forward" in self.headers:
            return None

        async def forward(leader: Any, timeout: float) -> Forwarded | None:
            return await self.api.forwarder.send(
                leader, self.method, self.target, self.headers, self.body, repeatable=repeatable
            )

        return forward


def _int32(text: str) -> int:
    """A number in a path or query; without one the route is unknown, as in Jersey."""
    digits = text.strip()
    if not digits.removeprefix("-").removeprefix("+").isdecimal() or not digits.isascii():
        raise unknown_route()
    number = int(digits) if len(digits) < 12 else MAX_VERSION + 1
    if not -MAX_VERSION - 1 <= number <= MAX_VERSION:
        raise unknown_route()
    return number


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """The decoded segments of a path; empty ones (`//`, a slash at the end) are skipped."""
    try:
        parts = raw_path.split(b"/")
        return tuple(unquote(part.decode("ascii"), errors="strict") for part in parts if part)
    except UnicodeDecodeError:
        raise BadRequest("The path is not percent-encoded UTF-8") from None


def parse_query(raw: bytes) -> dict[str, list[str]]:
    if not raw:
        return {}
    found: dict[str, list[str]] = {}
    try:
        for name, value in parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=100):
            found.setdefault(name, []).append(value)
    except ValueError:
        raise BadRequest("The query string cannot be read") from None
    return found


def below_context(
    segments: tuple[str, ...], query: dict[str, list[str]]
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """`/contexts/eu/subjects/orders` as `/subjects/:.eu:orders`, and so on; others stay as they are."""
    if len(segments) < 2 or segments[0] != "contexts":
        return segments, query
    try:
        prefix = subjects.normalize_context(subjects.split(segments[1]).context)
        if not segments[1].startswith(":"):
            prefix = subjects.normalize_context(segments[1])
    except ValueError as error:
        raise BadRequest(str(error)) from None
    rest = list(segments[2:])
    if not rest:
        return segments, query
    if rest[0] in ("config", "mode"):
        if len(rest) == 1:
            rest += [prefix] if prefix else []
        else:
            rest[1] = _in_context(prefix, rest[1])
    elif "subjects" in rest[:-1]:
        place = rest.index("subjects") + 1
        rest[place] = _in_context(prefix, rest[place])
    query = dict(query)
    if rest[:2] == ["schemas", "ids"]:
        query["subject"] = [_in_context(prefix, (query.get("subject") or [""])[0])]
    elif rest in (["schemas"], ["subjects"]):
        prefixes = query.get("subjectPrefix") or [""]
        query["subjectPrefix"] = [_in_context(prefix, each) for each in prefixes]
    return tuple(rest), query


def _in_context(prefix: str, name: str) -> str:
    return name if name.startswith((":.", subjects.ALL_CONTEXTS)) else prefix + name
