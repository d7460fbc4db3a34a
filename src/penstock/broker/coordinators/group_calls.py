"""Shared by the handlers of the group APIs: the caller of a request, and calls to the coordinator of a
group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.describable import Describable
from penstock.coordinator import Outcome
from penstock.errors import ApiError
from penstock.groups import Caller, GroupShard
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer, HasGroups

_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS = sum(1 << bit for bit in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
"""The authorized operations on a group, as bits: all of them if there are no ACLs."""

Step = Callable[[GroupShard, Caller, Any, int], Outcome]


def caller(context: RequestContext) -> Caller:
    """Who sends the request, with the host as Kafka shows it: with a slash before the address."""
    return Caller(context.client_id or "", "/" + context.peer.rpartition(":")[0], context.version)


def seeing(broker: HasAuthorizer, context: RequestContext, who: Caller) -> Caller:
    """The caller with a filter of the topics that it may describe, for requests that assign topics by
    pattern."""
    if broker.authorizer is None:
        return who
    host = context.peer.rpartition(":")[0]
    return who._replace(sees=Describable(broker.authorizer, str(context.principal), host))


def ask(
    broker: HasGroups, context: RequestContext, group_id: str, step: Step
) -> Message | asyncio.Future[Message]:
    """Run `step(shard, who, token, now_ms)` in the shard of the group. Returns its response, or a future of
    it."""
    who = caller(context)
    return broker.groups.call(group_id, lambda shard, token, now: step(shard, who, token, now))


async def answer_of(result: Message | asyncio.Future[Message]) -> Message:
    return result if isinstance(result, Message) else await result


async def ask_each(
    broker: HasGroups,
    context: RequestContext,
    calls: list[tuple[str, Step]],
    failed: Callable[[str, ApiError], Message],
) -> list[Message]:
    """For requests about several groups: starts all calls before it waits. A failure affects only its
    group."""
    asked: list[Message | asyncio.Future[Message]] = []
    for group_id, step in calls:
        try:
            asked.append(ask(broker, context, group_id, step))
        except ApiError as error:
            asked.append(failed(group_id, error))
    answers = []
    for (group_id, _), result in zip(calls, asked):
        try:
            answers.append(await answer_of(result))
        except ApiError as error:
            answers.append(failed(group_id, error))
    return answers
