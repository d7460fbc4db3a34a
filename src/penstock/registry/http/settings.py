"""Handlers of /config, /mode, /contexts and /v1/metadata."""

from __future__ import annotations

from penstock import __version__
from penstock.registry import planning, rendering, subjects
from penstock.registry.bodies import config_change, mode_of
from penstock.registry.errors import (
    compatibility_not_configured,
    invalid_mode,
    invalid_subject,
    mode_not_configured,
)
from penstock.registry.http.call import Answer, Call


def _scope(call: Call, *, checked: bool = False) -> str | None:
    """The subject or context of a setting; None for the whole registry."""
    name = call.path.get("subject")
    if name is None or subjects.is_default_context(name):
        return None
    if checked and not subjects.is_valid(name, for_settings=True):
        raise invalid_subject(name)
    return subjects.normalize(name)


async def config(call: Call) -> Answer:
    scope, state = _scope(call), call.service.state
    found = state.config_in_scope(scope) if call.flag("defaultToGlobal") else state.config(scope)
    if found is None:
        raise compatibility_not_configured(scope or "")
    return Answer(rendering.config(found))


async def update_config(call: Call) -> Answer:
    change, scope = config_change(call.body), _scope(call, checked=True)
    state = call.service.state
    return await call.mutate(lambda: planning.update_config(state, scope, change), rendering.config_update)


async def delete_config(call: Call) -> Answer:
    scope, state = _scope(call), call.service.state
    return await call.mutate(lambda: planning.delete_config(state, scope), rendering.config, repeatable=False)


async def mode(call: Call) -> Answer:
    scope, state = _scope(call), call.service.state
    found = state.mode_in_scope(scope) if call.flag("defaultToGlobal") else state.mode(scope)
    if found is None:
        raise mode_not_configured(scope or "")
    return Answer({"mode": found})


async def update_mode(call: Call) -> Answer:
    scope, force = _scope(call, checked=True), call.flag("force")
    wanted, state = mode_of(call.body), call.service.state
    if wanted == "FORWARD" and not subjects.is_global_context(scope):
        raise invalid_mode("Forward mode only supported on global level")
    return await call.mutate(
        lambda: planning.set_mode(state, scope, wanted, force=force), lambda answer: {"mode": answer}
    )


async def delete_mode(call: Call) -> Answer:
    scope, recursive, state = _scope(call), call.flag("recursive"), call.service.state
    return await call.mutate(
        lambda: planning.delete_mode(state, scope, recursive=recursive),
        lambda answer: {} if answer is None else {"mode": answer},
        repeatable=False,
    )


async def contexts(call: Call) -> Answer:
    prefix = call.text("contextPrefix")
    found = [context for context in call.service.state.contexts() if context.startswith(prefix)]
    return Answer(found[call.page()])


async def delete_context(call: Call) -> Answer:
    try:
        name = subjects.normalize_context(call.path["context"])
    except ValueError:
        raise invalid_subject(call.path["context"]) from None
    state = call.service.state
    answer = await call.mutate(
        lambda: planning.delete_context(state, name or ":.:"), lambda _: None, repeatable=False
    )
    return Answer(status=204, raw=b"", headers=answer.headers) if answer.status == 200 else answer


async def cluster_id(call: Call) -> Answer:
    clusters = {"kafka-cluster": call.api.cluster_id, "schema-registry-cluster": call.api.group}
    return Answer({"scope": {"path": [], "clusters": clusters}})


async def server_version(call: Call) -> Answer:
    return Answer({"version": __version__, "commitId": ""})


async def deployment(call: Call) -> Answer:
    # Confluent Cloud returns its own attributes here; other registries have none.
    return Answer({"attributes": []})


async def root(call: Call) -> Answer:
    return Answer({})
