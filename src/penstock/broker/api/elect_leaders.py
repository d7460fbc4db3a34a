"""ElectLeaders (key 43), versions 0-2.

1  unclean elections (KIP-460)   2  flexible

Elects the preferred leader of each partition or, in an unclean election, a replica that is not in sync for a
partition without a leader. Null topics mean all partitions; then the response lists only those that changed.
Any broker accepts the request and forwards it to the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.balance import PREFERRED, UNCLEAN, plan_elections
from penstock.errors import ApiError, ElectionNotNeeded, InvalidRequest
from penstock.metadata.image import ClusterImage
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage, HasMembership

    class ElectLeadersParts(HasImage, HasMembership, Protocol): ...


Results = dict[tuple[str, int], ApiError | None]


async def handle(broker: ElectLeadersParts, context: RequestContext, request: Message) -> Message:
    membership = broker.membership
    election = request.election_type if context.version >= 1 else PREFERRED
    if election not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"Unknown election type {election}")
    if membership is None:
        found = plan_elections(broker.image, _wanted(broker.image, request), election)
        # A single broker already leads all partitions.
        return _answer(request, {key: one for key, one in found.items() if isinstance(one, ApiError)})

    async def do() -> Message:
        results = await membership.carry_out(
            lambda image: plan_elections(image, _wanted(image, request), election)
        )
        return _answer(request, results)

    return await membership.at_controller(context, request, do)


def _wanted(image: ClusterImage, request: Message) -> list[tuple[str, int]]:
    if request.topic_partitions is None:
        return [
            (topic.name, partition.index) for topic in image.topics.values() for partition in topic.partitions
        ]
    return [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]


def _answer(request: Message, results: Results) -> Message:
    by_topic: dict[str, list[Message]] = {}
    if request.topic_partitions is not None:
        by_topic = {topic.topic: [] for topic in request.topic_partitions}
    for (topic, index), error in results.items():
        if request.topic_partitions is None and isinstance(error, ElectionNotNeeded):
            continue
        code, message = (0, None) if error is None else (error.code, error.message)
        by_topic.setdefault(topic, []).append(
            Message(partition_id=index, error_code=code, error_message=message)
        )
    return Message(
        throttle_time_ms=0,
        error_code=0,
        replica_election_results=[
            Message(topic=topic, partition_result=partitions) for topic, partitions in by_topic.items()
        ],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    """Version 0 has no top-level error code, so each partition gets the error."""
    topics = [] if context.version >= 1 else request.topic_partitions or []
    return Message(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            Message(
                topic=topic.topic,
                partition_result=[
                    Message(partition_id=index, error_code=code, error_message=None)
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


register(ApiKey.ELECT_LEADERS, range(3), handle, error_response)
