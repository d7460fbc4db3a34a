"""Headers of requests and responses. Cutting the stream into frames is the connection's business."""

from __future__ import annotations

import struct

from penstock.errors import WireError
from penstock.wire.api_keys import is_flexible
from penstock.wire.primitives import Buffer, nullable_string, skip_tags

_REQUEST = struct.Struct(">hhi")


def parse_request_header(
    buf: Buffer, pos: int, end: int | None = None
) -> tuple[int, int, int, str | None, int]:
    """(api key, version, correlation id, client id, position of the body) of the request at pos.

    The client id is an old-style string even in flexible headers (KIP-511). An API or version that
    is not known gets its header read as far as that: the answer needs the correlation id.
    """
    if end is None:
        end = len(buf)
    try:
        api_key, version, correlation_id = _REQUEST.unpack_from(buf, pos)
        client_id, body = nullable_string(buf, pos + 8, end)
        if is_flexible(api_key, version):
            if buf[body]:
                body = skip_tags(buf, body, end)
            else:
                body += 1
    except (struct.error, IndexError):
        raise WireError("a request is shorter than its header") from None
    if body > end:
        raise WireError("a request is shorter than its header")
    return api_key, version, correlation_id, client_id, body
