"""Frames over a blocking socket: a length, and so many bytes."""

from __future__ import annotations

import socket
import struct

_INT32 = struct.Struct(">i")
_LARGEST = 2**31 - 1
_CHUNK = 1 << 20


class BadFrame(Exception):
    """A length that no response of a Kafka broker has."""


def receive_frame(sock: socket.socket) -> bytearray:
    """The next frame without its length; ConnectionResetError if the other side closes the connection."""
    (length,) = _INT32.unpack(_receive(sock, 4))
    if not 4 <= length <= _LARGEST:
        raise BadFrame(f"a frame of {length} bytes")
    return _receive(sock, length)


def send_frame(sock: socket.socket, payload: bytes) -> None:
    sock.sendall(_INT32.pack(len(payload)) + payload)


def _receive(sock: socket.socket, count: int) -> bytearray:
    data = bytearray(min(count, _CHUNK))
    have = 0
    while True:
        with memoryview(data) as view:
            while have < len(data):
                size = sock.recv_into(view[have:])
                if not size:
                    raise ConnectionResetError("closed by the broker")
                have += size
        if have == count:
            return data
        # Do not allocate for the whole length before a first part has arrived.
        grown = bytearray(count)
        grown[:have] = data
        data = grown
