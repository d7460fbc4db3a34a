"""DescribeCluster (key 60), versions 0-2.

1  endpoint type (KIP-919)   2  fenced brokers (KIP-1073)

Left out: controllers as endpoints (UNSUPPORTED_ENDPOINT_TYPE), because the controller runs in a broker.
No broker is ever reported as fenced. Without ACLs everyone is authorized for everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.operations import CLUSTER_OPERATIONS, NOT_ASKED
from penstock.errors import UnsupportedEndpointType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanFindEndpoints, HasImage

    class DescribeClusterParts(CanFindEndpoints, HasImage, Protocol): ...


_BROKERS = 1


def handle(broker: DescribeClusterParts, context: RequestContext, request: Message) -> Message:
    if request.endpoint_type != _BROKERS:
        raise UnsupportedEndpointType()
    image = broker.image
    brokers = [
        Message(broker_id=node, host=host, port=port, rack=rack, is_fenced=False)
        for node, host, port, rack in broker.endpoints(broker.shown_brokers, context.listener)
    ]
    return Message(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=code,
        error_message=None,
        endpoint_type=request.endpoint_type,
        cluster_id="",
        controller_id=-1,
        brokers=[],
        cluster_authorized_operations=NOT_ASKED,
    )


register(ApiKey.DESCRIBE_CLUSTER, range(3), handle, error_response)
