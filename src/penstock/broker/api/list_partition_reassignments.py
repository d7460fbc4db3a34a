"""ListPartitionReassignments (key 46), version 0.

The reassignments in progress, of the partitions in the request or of all, as the elected controller has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.reassignment import under_way
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasController, HasMembership

    class ListPartitionReassignmentsParts(HasController, HasMembership, Protocol): ...


async def handle(
    broker: ListPartitionReassignmentsParts, context: RequestContext, request: Message
) -> Message:
    membership = broker.membership

    async def do() -> Message:
        wanted = None
        if request.topics is not None:
            wanted = {topic.name: topic.partition_indexes for topic in request.topics}
        topics = [
            Message(
                name=name,
                partitions=[
                    Message(
                        partition_index=one.index,
                        replicas=list(one.replicas),
                        adding_replicas=list(one.adding),
                        removing_replicas=list(one.removing),
                    )
                    for one in partitions
                ],
            )
            for name, partitions in under_way(broker.controller.image, wanted).items()
        ]
        return Message(throttle_time_ms=0, error_code=0, error_message=None, topics=topics)

    return await do() if membership is None else await membership.at_controller(context, request, do)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=None, topics=[])


register(ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1), handle, error_response)
