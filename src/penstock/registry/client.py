"""A client for any registry with Confluent's REST API, used by the command line and Spark.

A rejected request raises `Refused` with the registry's code and message; a registry that does not respond
raises `Unreachable`. Schemas by id never change, so they are cached. httpx is imported when a client is
created.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from penstock.errors import MissingExtra
from penstock.registry import subjects as names
from penstock.registry.errors import RegistryError
from penstock.registry.formats import InvalidSchema, ParsedSchema, Reference, ResolvedReference, parse

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]

DEFAULT_URL = "http://127.0.0.1:8081"
_TYPE = "application/vnd.schemaregistry.v1+json"
_PAGE = 1000
_MAX_REFERENCES = 10_000
_PAUSE = 0.2

SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
NOT_CONFIGURED = (40401, 40408, 40409)


class Unreachable(RegistryError):
    """No registry responds at the address."""


class RequestRefused(RegistryError):
    """The registry rejected a request."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (error {code})")
        self.status = status
        self.code = code
        self.message = message


class MissingLibrary(MissingExtra, RegistryError):
    """A required library is not installed."""

    def __init__(self, what: str, error: ImportError) -> None:
        super().__init__(what, error.name, "registry")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The address of a registry, and the login. `url` may have several addresses: the first one that responds
    is used.
    """

    url: str = DEFAULT_URL
    user: str | None = field(default=None, repr=False)
    """`name:password`."""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeout: float = 10.0
    patience: float = 0.0
    """How long to retry if a registry is unavailable, or responds with 5xx."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a response; subject and version are empty if it was requested by id."""

    id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    metadata: Json | None = None
    rule_set: Json | None = None

    @property
    def body(self) -> Json:
        """The body of a registration."""
        return schema_body(self.schema, self.schema_type, self.references, self.metadata, self.rule_set)


def schema_body(
    text: str,
    schema_type: str,
    references: Sequence[Reference] = (),
    metadata: Json | None = None,
    rule_set: Json | None = None,
) -> Json:
    body: Json = {"schema": text, "schemaType": schema_type}
    if references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in references
        ]
    if metadata is not None:
        body["metadata"] = metadata
    if rule_set is not None:
        body["ruleSet"] = rule_set
    return body


class RegistryClient:
    """Talks to one registry, or to the first of several that responds. For one thread."""

    def __init__(self, settings: RegistrySettings) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingLibrary("A schema registry's client", error) from error
        self._errors = httpx.TransportError
        self.settings = settings
        self._bases, users = _addresses(settings.url)
        self.url = ",".join(self._bases)
        user = settings.user or users
        auth = None
        if user is not None:
            name, _, password = user.partition(":")
            auth = httpx.BasicAuth(name, password)
        self._http: httpx.Client = httpx.Client(
            timeout=settings.timeout,
            auth=auth,
            verify=_tls(settings),
            trust_env=False,
            headers={"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE},
        )
        self._by_id: dict[tuple[int, str], RegisteredSchema] = {}
        self._by_guid: dict[str, RegisteredSchema] = {}
        self._resolved: dict[tuple[str, str, int], ResolvedReference] = {}

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Requests

    def request(self, method: str, *path: str, body: Any = None, **query: object) -> Any:
        """The response as JSON. `path` are unencoded segments; query parameters that are False are
        omitted.
        """
        place = "/" + "/".join(quote(segment, safe="") for segment in path)
        params = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in query.items()
            if value is not None and value is not False
        }
        content = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + self.settings.patience
        while True:
            trouble = ""
            for base in list(self._bases):
                try:
                    answer = self._http.request(method, base + place, params=params, content=content)
                except self._errors as error:
                    trouble = str(error) or type(error).__name__
                    continue
                if answer.status_code < 500 or time.monotonic() >= deadline:
                    self._prefer(base)
                    return self._read(answer, base)
                trouble = f"HTTP {answer.status_code}"
            if time.monotonic() >= deadline:
                raise Unreachable(f"cannot reach a schema registry at {self.url} ({trouble.lower()})")
            time.sleep(_PAUSE)

    def _prefer(self, base: str) -> None:
        if self._bases[0] != base:
            self._bases.remove(base)
            self._bases.insert(0, base)

    def _read(self, answer: httpx.Response, base: str) -> Any:
        if answer.is_success and not answer.content:
            return None
        try:
            value = answer.json()
        except ValueError:
            value = None
        if answer.is_success and value is not None:
            return value
        if answer.status_code == 401:
            raise RequestRefused(401, 401, f"the registry at {base} rejected the user or password (401)")
        if isinstance(value, dict) and "error_code" in value:
            raise RequestRefused(answer.status_code, int(value["error_code"]), str(value.get("message", "")))
        raise Unreachable(
            f"the server at {base} is not a schema registry (HTTP {answer.status_code}, "
            f"{answer.headers.get('content-type', 'no content type')})"
        )

    # Subjects and versions

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        found: list[str] = self.request(
            "GET", "subjects", subjectPrefix=_in_all_contexts(prefix), deleted=deleted
        )
        # Older registries do not have the parameter.
        wanted = names.SubjectPrefix(_in_all_contexts(prefix))
        return sorted(name for name in found if wanted.matches(name))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        found: list[int] = self.request("GET", "subjects", subject, "versions", deleted=deleted)
        return sorted(found)

    def version(
        self, subject: str, version: int | str = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        answer = self.request("GET", "subjects", subject, "versions", str(version), deleted=deleted)
        return _registered(answer)

    def schemas(self, prefix: str = "", *, deleted: bool = False) -> Iterator[RegisteredSchema]:
        """Every version of every subject with the prefix, by subject and version."""
        subjects = self.subjects(prefix, deleted=deleted)
        pages = self._pages(prefix, deleted)
        try:
            first = next(pages, [])
        except RequestRefused as error:
            if error.status not in (404, 405):
                raise
            first = []  # a registry without /schemas
        if first or not subjects:
            yield from first
            for page in pages:
                yield from page
            return
        for subject in subjects:
            for number in self.versions(subject, deleted=deleted):
                yield self.version(subject, number, deleted=deleted)

    def _pages(self, prefix: str, deleted: bool) -> Iterator[list[RegisteredSchema]]:
        start = 0
        while True:
            page = self.request(
                "GET",
                "schemas",
                subjectPrefix=_in_all_contexts(prefix),
                deleted=deleted,
                offset=start,
                limit=_PAGE,
            )
            yield [_registered(entry) for entry in page]
            start += len(page)
            if len(page) < _PAGE:
                return

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """The schema of an id. In a context other than the default one, `subject` names the context."""
        context = names.context_prefix(subject)
        known = self._by_id.get((schema_id, context))
        if known is None:
            answer = self.request("GET", "schemas", "ids", str(schema_id), subject=context or None)
            known = replace(_registered({"id": schema_id, **answer}), id=schema_id, subject=context)
            self._by_id[schema_id, context] = known
        return known

    def by_guid(self, guid: str) -> RegisteredSchema:
        known = self._by_guid.get(guid)
        if known is None:
            known = self._by_guid[guid] = _registered(self.request("GET", "schemas", "guids", guid))
        return known

    # Writing

    def register(self, subject: str, body: Json, *, normalize: bool = False) -> int:
        """Returns the schema's id."""
        answer = self.request(
            "POST", "subjects", subject, "versions", body=_as_sent(body), normalize=normalize
        )
        return int(answer["id"])

    def look_up(
        self, subject: str, body: Json, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        answer = self.request(
            "POST", "subjects", subject, body=_as_sent(body), normalize=normalize, deleted=deleted
        )
        return _registered(answer)

    def compatibility(
        self, subject: str, body: Json, version: str | None = None, *, normalize: bool = False
    ) -> list[str] | None:
        """None if the schema is compatible, else the reasons. Without a version, as at registration."""
        place = ["compatibility", "subjects", subject, "versions", *([version] if version else [])]
        answer = self.request("POST", *place, body=_as_sent(body), verbose=True, normalize=normalize)
        if answer["is_compatible"]:
            return None
        return [str(message) for message in answer.get("messages") or ()]

    # Settings

    def config(self, subject: str | None = None, *, effective: bool = False) -> Json | None:
        return self._setting("config", subject, effective)

    def mode(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        found = self._setting("mode", subject, effective)
        return None if found is None else str(found["mode"])

    def _setting(self, what: str, subject: str | None, effective: bool) -> Json | None:
        path = (what,) if subject is None else (what, subject)
        try:
            found: Json = self.request("GET", *path, defaultToGlobal=effective)
        except RequestRefused as error:
            if subject is not None and error.code in NOT_CONFIGURED:
                return None
            raise
        return found

    def put(self, what: str, subject: str | None, body: Json, *, force: bool = False) -> None:
        """Sets the `config` or `mode` of a subject or, without one, of the registry."""
        self.request("PUT", *((what,) if subject is None else (what, subject)), body=body, force=force)

    def unset(self, what: str, subject: str | None) -> None:
        self.request("DELETE", *((what,) if subject is None else (what, subject)))

    # Understanding

    def resolve(self, schema: RegisteredSchema) -> tuple[ResolvedReference, ...]:
        """The schema's references with their texts, recursively."""
        return self.resolve_references(schema.references, schema.subject)

    def resolve_references(
        self, references: Sequence[Reference], parent: str = ""
    ) -> tuple[ResolvedReference, ...]:
        return tuple(self._reference(each, parent, (), [_MAX_REFERENCES]) for each in references)

    def _reference(
        self, reference: Reference, parent: str, above: tuple[tuple[str, int], ...], budget: list[int]
    ) -> ResolvedReference:
        subject = names.qualify_with(parent, reference.subject)
        known = self._resolved.get((reference.name, subject, reference.version))
        if known is not None:
            return known
        place = (subject, reference.version)
        budget[0] -= 1
        if place in above or budget[0] < 0:
            raise InvalidSchema(f"the references of {subject} version {reference.version} have no end")
        found = self.version(subject, reference.version, deleted=True)
        below = tuple(self._reference(each, subject, (*above, place), budget) for each in found.references)
        resolved = ResolvedReference(
            reference.name, reference.subject, reference.version, found.schema, below
        )
        self._resolved[reference.name, subject, reference.version] = resolved
        return resolved

    def parse(self, schema: RegisteredSchema) -> ParsedSchema:
        """The parsed schema; raises InvalidSchema."""
        return parse_schema(schema.schema_type, schema.schema, self.resolve(schema))


def parse_schema(
    schema_type: str, text: str, references: Sequence[ResolvedReference] = (), *, strict: bool = False
) -> ParsedSchema:
    try:
        return parse(schema_type, text, references, strict=strict)
    except ImportError as error:
        raise MissingLibrary(f"A schema of type {schema_type}", error) from error


def _as_sent(body: Json) -> Json:
    """A request without a type means Avro in registries of any version."""
    return {name: value for name, value in body.items() if (name, value) != ("schemaType", "AVRO")}


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        id=int(answer.get("id", 0)),
        schema_type=answer.get("schemaType") or "AVRO",
        schema=answer["schema"],
        references=tuple(
            Reference(each["name"], each["subject"], int(each["version"]))
            for each in answer.get("references") or ()
        ),
        subject=answer.get("subject") or "",
        version=int(answer.get("version") or 0),
        metadata=answer.get("metadata"),
        rule_set=answer.get("ruleSet"),
    )


def _in_all_contexts(prefix: str) -> str:
    return prefix if prefix.startswith(":") else names.ALL_CONTEXTS + prefix


def _addresses(text: str) -> tuple[list[str], str | None]:
    """The URLs without their user, and that user."""
    found: list[str] = []
    user: str | None = None
    for word in text.split(","):
        parts = urlsplit(word.strip())
        if not word.strip():
            continue
        try:
            valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
        except ValueError:
            valid = False
        if not valid:
            raise Unreachable(f"'{word.strip()}' is not the URL of a schema registry, such as {DEFAULT_URL}")
        if parts.username is not None:
            user = f"{parts.username}:{parts.password or ''}"
        host = parts.netloc.rpartition("@")[2]
        found.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    if not found:
        raise Unreachable(f"no URL of a schema registry is given, such as {DEFAULT_URL}")
    return found, user


def _tls(settings: RegistrySettings) -> ssl.SSLContext | bool:
    if "https:" not in settings.url.lower():
        return False  # there is no certificate to check
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.certificate is not None:
            context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        where = getattr(error, "filename", None) or settings.ca or settings.certificate
        raise Unreachable(f"the TLS files of the registry cannot be read: {where} ({error})") from None
    return context
