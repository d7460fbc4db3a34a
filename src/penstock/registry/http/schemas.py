"""Handlers of /schemas and /compatibility: reading by id, comparing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from penstock.elected.errors import StoreUncertain
from penstock.registry import planning, rendering, subjects
from penstock.registry.bodies import schema_body
from penstock.registry.errors import RestError, schema_not_found, version_not_found
from penstock.registry.formats import SCHEMA_TYPES, Reference
from penstock.registry.http.call import Answer, Call
from penstock.registry.records import StoredSchema, reference_json

MOST_SCHEMAS = 1000


async def formatted(call: Call, entry: StoredSchema) -> str | None:
    """The text in the style of `?format=`; None for the text as it is."""
    style = call.text("format").strip()
    if not style:
        return None
    text: str = await call.in_thread(lambda: call.service.schemas.stored(entry).formatted(style))
    return text


def qualified_references(call: Call, entry: StoredSchema, answer: dict[str, Any]) -> dict[str, Any]:
    """`referenceFormat=qualified`: references with their context."""
    if call.text("referenceFormat") == "qualified" and subjects.context_prefix(entry.subject):
        if entry.references:
            answer["references"] = [
                reference_json(
                    Reference(each.name, subjects.qualify_with(entry.subject, each.subject), each.version)
                )
                for each in entry.references
            ]
    return answer


async def _found(call: Call) -> StoredSchema:
    """The entry of an id. If it is unknown, read the topic first: it may just have been registered at the
    leader.
    """
    schema_id, subject = call.id(), _subject(call)
    entry = call.service.state.by_id(schema_id, subject)
    if entry is None and not call.service.leads:
        try:
            await call.service.store.read_to_end(2)
        except StoreUncertain:
            pass
        entry = call.service.state.by_id(schema_id, subject)
    if entry is None:
        raise schema_not_found(schema_id)
    return entry


def _subject(call: Call) -> str | None:
    name = call.text("subject")
    return call.service.state.resolve_alias(subjects.normalize(name)) if name else None


async def by_id(call: Call) -> Answer:
    entry = await _found(call)
    text = await formatted(call, entry)
    answer = rendering.by_id(entry, call.full, named=bool(call.text("subject")), text=text)
    if call.flag("fetchMaxId"):
        answer["maxId"] = call.service.state.max_id(subjects.context_of(entry.subject))
    return Answer(qualified_references(call, entry, answer))


async def text_by_id(call: Call) -> Answer:
    entry = await _found(call)
    text = await formatted(call, entry)
    return Answer(raw=(entry.schema if text is None else text).encode("utf-8", "surrogatepass"))


async def _holders(call: Call) -> list[StoredSchema]:
    try:
        entry = await _found(call)
    except RestError:
        raise schema_not_found() from None
    deleted = call.flag("deleted")
    return [holder for holder in call.service.state.holders(entry) if deleted or not holder.deleted]


async def subjects_by_id(call: Call) -> Answer:
    return Answer([holder.subject for holder in await _holders(call)][call.page()])


async def versions_by_id(call: Call) -> Answer:
    holders = await _holders(call)
    return Answer([{"subject": each.subject, "version": each.version} for each in holders][call.page()])


async def by_guid(call: Call) -> Answer:
    found = _by_guid(call)
    if not found:
        raise schema_not_found(call.path["guid"])
    entry = found[0][1]
    return Answer(rendering.by_id(entry, call.full, text=await formatted(call, entry)))


async def ids_by_guid(call: Call) -> Answer:
    return Answer([{"context": context, "id": entry.id} for context, entry in _by_guid(call)])


def _by_guid(call: Call) -> list[tuple[str, StoredSchema]]:
    try:
        guid = UUID(call.path["guid"]).bytes
    except ValueError:
        return []
    return call.service.state.by_guid(guid)


async def types(call: Call) -> Answer:
    return Answer(list(SCHEMA_TYPES))


async def listing(call: Call) -> Answer:
    prefix, page = call.text("subjectPrefix"), call.page(MOST_SCHEMAS)
    aliases = call.service.state.aliases(prefix) if call.flag("aliases") else {}
    entries = list(_listed(call, prefix))
    if aliases:
        seen = {entry.subject for entry in entries}
        for subject in sorted(set(aliases) - seen):
            entries += [entry for entry in _listed(call, subject) if entry.subject == subject]
        entries.sort(key=lambda entry: (entry.subject, entry.version))
    answer = []
    for entry in entries[page]:
        shown = rendering.version(entry, call.full)
        if entry.subject in aliases:
            shown["aliases"] = aliases[entry.subject]
        answer.append(shown)
    return Answer(answer)


def _listed(call: Call, prefix: str) -> Iterator[StoredSchema]:
    deleted, latest_only, rule_type = call.flag("deleted"), call.flag("latestOnly"), call.text("ruleType")
    entries = [entry for entry in call.service.state.schemas(prefix) if deleted or not entry.deleted]
    for index, entry in enumerate(entries):
        if latest_only and index + 1 < len(entries) and entries[index + 1].subject == entry.subject:
            continue
        if not rule_type or _has_rule(entry, rule_type):
            yield entry


def _has_rule(entry: StoredSchema, rule_type: str) -> bool:
    lists = (entry.rule_set or {}).values()
    return any(rule.get("type") == rule_type for rules in lists if isinstance(rules, list) for rule in rules)


# Comparing


async def compatible_with_version(call: Call) -> Answer:
    subject, version = call.subject, call.version()
    state = call.service.state
    entry = state.latest(subject) if version == -1 else state.get(subject, version)
    if version != -1 and (entry is None or entry.deleted):
        raise version_not_found(version)
    return await _compatible(call, subject, [] if entry is None else [entry])


async def compatible_with_all(call: Call) -> Answer:
    return await _compatible(call, call.subject, call.service.state.versions(call.subject))


async def _compatible(call: Call, subject: str, previous: list[StoredSchema]) -> Answer:
    body, verbose = schema_body(call.body), call.flag("verbose")
    service, normalize = call.service, call.normalize(subject)
    try:
        reasons = await call.in_thread(
            lambda: planning.is_compatible(
                service.state, service.schemas, subject, body, previous, normalize=normalize
            )
        )
    except RestError as error:
        if not verbose or error.code != 42201:
            raise
        reasons = [error.message]
    answer: dict[str, Any] = {"is_compatible": not reasons}
    if verbose:
        answer["messages"] = reasons
    return Answer(answer)
