"""Headers of requests and responses, for the broker and all internal clients.

The connection divides the stream into frames.
"""

from __future__ import annotations

import struct

from penstock.errors import WireError
from penstock.wire.api_keys import is_flexible, request_header_version, response_header_version
from penstock.wire.primitives import Buffer, nullable_string, skip_tags

_REQUEST = struct.Struct(">hhi")
_FRAME = struct.Struct(">ihhih")
_LENGTH = 4
_CORRELATION_ID = 4


def parse_request_header(
    buf: Buffer, pos: int, end: int | None = None
) -> tuple[int, int, int, str | None, int]:
    """(api key, version, correlation id, client id, position of the body) of the request at pos.

    The client id is a non-compact string even in flexible headers (KIP-511). For an unknown API or version
    the header is read up to the client id, because the response needs the correlation id.
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


def request_frame(api_key: int, version: int, correlation_id: int, client_id: bytes, body: bytes) -> bytes:
    """A request frame: its length, its header and `body`."""
    tags = b"\0" if request_header_version(api_key, version) >= 2 else b""
    size = _FRAME.size - _LENGTH + len(client_id) + len(tags) + len(body)
    return _FRAME.pack(size, api_key, version, correlation_id, len(client_id)) + client_id + tags + body


class Requests:
    """Numbers the requests of one connection, and makes their frames."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._last = 0

    def frame(self, api_key: int, version: int, body: bytes) -> tuple[int, bytes]:
        """The correlation id and the frame of the next request."""
        self._last = (self._last + 1) & 0x7FFFFFFF
        return self._last, request_frame(api_key, version, self._last, self._client_id, body)


def response_start(api_key: int, version: int, frame: Buffer) -> int:
    """The position of the body in a response frame, which starts with the correlation id."""
    if response_header_version(api_key, version) == 0:
        return _CORRELATION_ID
    try:
        return skip_tags(frame, _CORRELATION_ID, len(frame))
    except IndexError:
        raise WireError("a response is shorter than its header") from None
