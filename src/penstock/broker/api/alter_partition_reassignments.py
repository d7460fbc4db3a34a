"""AlterPartitionReassignments (key 45), versions 0-1.

1  allow_replication_factor_change (KIP-860)

Moves partitions to other brokers, or cancels a reassignment (null replicas). Any broker accepts the request
and forwards it to the elected controller. The response is sent when the reassignment is stored;
ListPartitionReassignments shows its progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.reassignment import Wanted, plan_reassignments
from penstock.errors import ApiError, NoReassignmentInProgress
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage, HasMembership

    class AlterPartitionReassignmentsParts(HasImage, HasMembership, Protocol): ...


async def handle(
    broker: AlterPartitionReassignmentsParts, context: RequestContext, request: Message
) -> Message:
    membership = broker.membership
    if membership is None:
        return _answer(request, _alone(broker, request))

    async def do() -> Message:
        wanted = _wanted(request)
        unclean = {one.topic for one in wanted if membership.unclean(one.topic)}
        other_factor = context.version < 1 or request.allow_replication_factor_change
        results = await membership.carry_out(
            lambda image: plan_reassignments(image, wanted, unclean, other_factor=other_factor)
        )
        return _answer(request, results)

    return await membership.at_controller(context, request, do)


def _wanted(request: Message) -> list[Wanted]:
    return [
        Wanted(topic.name, one.partition_index, None if one.replicas is None else tuple(one.replicas))
        for topic in request.topics
        for one in topic.partitions
    ]


def _alone(
    broker: AlterPartitionReassignmentsParts, request: Message
) -> dict[tuple[str, int], ApiError | None]:
    """A single broker cannot move partitions, but the request is still validated."""
    results = plan_reassignments(broker.image, _wanted(request), ())
    return {key: one if isinstance(one, ApiError) else None for key, one in results.items()}


def _answer(request: Message, results: dict[tuple[str, int], ApiError | None]) -> Message:
    responses = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            error = results.get((topic.name, one.partition_index), NoReassignmentInProgress())
            code, message = (0, None) if error is None else (error.code, error.message)
            partitions.append(
                Message(partition_index=one.partition_index, error_code=code, error_message=message)
            )
        responses.append(Message(name=topic.name, partitions=partitions))
    return Message(
        throttle_time_ms=0,
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=0,
        error_message=None,
        responses=responses,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0,
        allow_replication_factor_change=True,
        error_code=code,
        error_message=None,
        responses=[],
    )


register(ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(2), handle, error_response)
