"""ApiVersions (key 18), versions 0-4.

1  throttle time   3  flexible, the client's name and release (KIP-511)   4  features from version 0 on

The list of APIs comes from their registrations, so it has exactly what is served. The APIs of client metrics
are in it only while there is a subscription to them: without one, clients would ask for it again and again,
and librdkafka would log that. A request of a newer version gets UNSUPPORTED_VERSION in a version 0 response
with the supported range, so that the client can retry. Features and the versions of them in force:
`broker.features`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.broker import features
from penstock.broker.api_table import APIS, Api, register
from penstock.broker.net.context import RequestContext
from penstock.errors import InvalidRequest
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage

_CLIENT_METRICS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def handle(broker: HasImage, context: RequestContext, request: Message) -> Message:
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise InvalidRequest(f"{text!r} is not a name or version of client software")
        if context.session is not None:
            context.session.software = (request.client_software_name, request.client_software_version)
    return Message(
        error_code=0,
        api_keys=[
            _row(APIS[key])
            for key in sorted(APIS)
            if key not in _CLIENT_METRICS or broker.image.client_metrics
        ],
        throttle_time_ms=0,
        supported_features=features.supported(context.version),
        finalized_features_epoch=broker.image.version,
        finalized_features=features.finalized(),
    )


def _row(api: Api) -> Message:
    return Message(api_key=int(api.key), min_version=api.versions[0], max_version=api.versions[-1])


def error_response(context: RequestContext, request: Message | None, code: int) -> Message:
    return Message(error_code=code, api_keys=[_row(APIS[ApiKey.API_VERSIONS])], throttle_time_ms=0)


register(ApiKey.API_VERSIONS, range(5), handle, error_response)
