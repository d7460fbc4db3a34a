"""Handlers of /subjects: versions, registering, looking up, deleting."""

from __future__ import annotations

from penstock.registry import planning, rendering
from penstock.registry.bodies import schema_body
from penstock.registry.errors import (
    invalid_subject,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from penstock.registry.http.call import Answer, Call
from penstock.registry.http.schemas import MOST_SCHEMAS, formatted, qualified_references
from penstock.registry.lookup import look_up_anywhere
from penstock.registry.records import StoredSchema
from penstock.registry.subjects import ALL_CONTEXTS, is_valid


async def listing(call: Call) -> Answer:
    prefix = call.text("subjectPrefix", ALL_CONTEXTS)
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    names = [
        name
        for name, gone in call.service.state.subjects(prefix)
        if (gone if deleted_only else deleted or not gone)
    ]
    return Answer(names[call.page()])


async def versions(call: Call) -> Answer:
    subject, state = call.subject, call.service.state
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    negative = call.flag("deletedAsNegative")
    if not state.has_subjects(subject, deleted=deleted or deleted_only or negative):
        raise subject_not_found(subject)
    entries = state.versions(subject, deleted=True)
    if negative:
        numbers = [-entry.version if entry.deleted else entry.version for entry in entries]
    elif deleted_only:
        numbers = [entry.version for entry in entries if entry.deleted]
    else:
        numbers = [entry.version for entry in entries if deleted or not entry.deleted]
    return Answer(numbers[call.page()])


def _version(call: Call, *, deleted: bool) -> StoredSchema:
    subject, version = call.subject, call.version()
    entry = call.service.state.find(subject, version, deleted=deleted)
    if entry is None:
        if not call.service.state.has_subjects(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise version_not_found(version)
    return entry


async def version(call: Call) -> Answer:
    entry = _version(call, deleted=call.flag("deleted"))
    answer = rendering.version(entry, call.full, text=await formatted(call, entry))
    return Answer(qualified_references(call, entry, answer))


async def text_of_version(call: Call) -> Answer:
    entry = _version(call, deleted=call.flag("deleted"))
    text = await formatted(call, entry)
    return Answer(raw=(entry.schema if text is None else text).encode("utf-8", "surrogatepass"))


async def referenced_by(call: Call) -> Answer:
    entry = _version(call, deleted=True)
    ids = call.service.state.referenced_by(entry.subject, entry.version, deleted=call.flag("deleted"))
    return Answer([schema_id for _, schema_id in ids][call.page(MOST_SCHEMAS)])


async def register(call: Call) -> Answer:
    if not is_valid(call.path["subject"]):
        raise invalid_subject(call.path["subject"])
    subject, body, service = call.subject, schema_body(call.body), call.service
    normalize, force = call.normalize(subject), call.flag("force")

    def completed(entry: StoredSchema) -> bool:
        return body.empty or (entry.metadata, entry.rule_set) != (body.metadata, body.rule_set)

    if not service.leads:
        entry = await call.in_thread(
            lambda: planning.already_registered(
                service.state, service.schemas, subject, body, normalize=normalize
            )
        )
        if entry is not None:
            return Answer(
                rendering.registered(
                    entry, call.full, completed=completed(entry), text=await formatted(call, entry)
                )
            )

    def plan() -> planning.Plan:
        existing = planning.already_registered(
            service.state, service.schemas, subject, body, normalize=normalize
        )
        if existing is not None:
            return planning.Plan(existing)
        return planning.register(
            service.state, service.schemas, subject, body, normalize=normalize, force=force
        )

    def render(entry: StoredSchema) -> dict[str, object]:
        stored = service.state.get(entry.subject, entry.version)
        return rendering.registered(stored or entry, call.full, completed=completed(entry))

    return await call.mutate(plan, render)


async def look_up(call: Call) -> Answer:
    subject, body, service = call.subject, schema_body(call.body), call.service
    normalize, deleted = call.normalize(subject), call.flag("deleted") or call.flag("lookupDeletedSchema")
    entry = await call.in_thread(
        lambda: look_up_anywhere(
            service.state, service.schemas, subject, body, normalize=normalize, deleted=deleted
        )
    )
    if entry is None:
        if not service.state.has_subjects(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise schema_not_found()
    return Answer(rendering.version(entry, call.full, text=await formatted(call, entry)))


async def latest_with_metadata(call: Call) -> Answer:
    subject, deleted = call.subject, call.flag("deleted")
    wanted = dict(zip(call.texts("key"), call.texts("value")))
    for entry in reversed(call.service.state.versions(subject, deleted=deleted)):
        properties = (entry.metadata or {}).get("properties", {})
        if entry.metadata is not None and wanted.items() <= properties.items():
            return Answer(rendering.version(entry, call.full, text=await formatted(call, entry)))
    if not call.service.state.has_subjects(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


async def delete(call: Call) -> Answer:
    subject, permanent, state = call.subject, call.flag("permanent"), call.service.state
    return await call.mutate(
        lambda: planning.delete_subject(state, subject, permanent=permanent),
        lambda answer: answer,
        repeatable=False,
    )


async def delete_version(call: Call) -> Answer:
    subject, version, permanent = call.subject, call.version(), call.flag("permanent")
    state = call.service.state
    return await call.mutate(
        lambda: planning.delete_version(state, subject, version, permanent=permanent),
        lambda answer: answer,
        repeatable=False,
    )
