"""A proxy in front of a real broker that sees every request: for TLS, SASL, and leaders that move.

A client that comes to it stays with it: the addresses in Metadata and FindCoordinator become its own. What
else it does is in the methods of a subclass.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from penstock.errors import error_for_name
from penstock.wire.api_keys import ApiKey, response_header_version
from penstock.wire.codec import Message, decode_request, decode_response, encode_response
from penstock.wire.frame import parse_request_header


@dataclass
class Session:
    """What a subclass remembers of one connection."""

    user: str | None = None
    exchange: list[bytes] = field(default_factory=list)
    mechanism: str = ""


@dataclass
class Request:
    api: ApiKey
    version: int
    correlation_id: int
    body: bytes

    def message(self) -> Message:
        return decode_request(self.api, self.version, self.body)

    def answer(self, message: Message) -> bytes:
        flexible = response_header_version(self.api, self.version) == 1
        body = encode_response(self.api, self.version, message)
        return self.correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"") + body


class Proxy:
    CHANGED: tuple[ApiKey, ...] = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR)

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.upstream = 0
        self.seen: list[ApiKey] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    # ---- for subclasses ----

    def on_request(self, session: Session, request: Request) -> bytes | None:
        """An answer of the proxy's own, or None to pass the request on; ConnectionError hangs up."""
        return None

    def on_answer(self, request: Request, answer: Message) -> None:
        """Changes a broker's answer; called for the APIs in CHANGED."""
        for broker in answer.brokers if request.api is ApiKey.METADATA else (*answer.coordinators, answer):
            broker.host, broker.port = "127.0.0.1", self.port

    # ---- its life ----

    def serve(self, upstream: int) -> Self:
        self.upstream = upstream
        self._start(self._accept)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        for each in (self._listener, *self._sockets):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        for thread in self._threads:
            thread.join(20)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(self._connection, client)

    def _connection(self, client: socket.socket) -> None:
        upstream: socket.socket | None = None
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
                self._sockets.append(client)
            upstream = socket.create_connection(("127.0.0.1", self.upstream))
            self._sockets.append(upstream)
            session = Session()
            while True:
                frame = _frame(client)
                api, version, correlation_id, _, body = parse_request_header(frame, 0)
                request = Request(ApiKey(api), version, correlation_id, frame[body:])
                self.seen.append(request.api)
                answer = self.on_request(session, request)
                if answer is None:
                    upstream.sendall(struct.pack(">i", len(frame)) + frame)
                    answer = _frame(upstream)
                    if request.api in self.CHANGED:
                        start = 4 + response_header_version(request.api, request.version)
                        message = decode_response(request.api, request.version, answer, start)
                        self.on_answer(request, message)
                        answer = request.answer(message)
                client.sendall(struct.pack(">i", len(answer)) + answer)
        except OSError:
            pass
        finally:
            client.close()
            if upstream is not None:
                upstream.close()


def _frame(source: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(source, 4))
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = source.recv(min(1 << 20, size - len(data)))
        if not chunk:
            raise ConnectionResetError
        data += chunk
    return bytes(data)


class SaslProxy(Proxy):
    """Lets nothing but ApiVersions through before the client has shown that it knows a password.

    It knows what a Kafka broker stores: for SCRAM salted keys, never the password (RFC 5802). `impostor` is a
    server that accepts everybody and knows no keys.
    """

    CHANGED = (*Proxy.CHANGED, ApiKey.API_VERSIONS)
    ITERATIONS = 4096

    def __init__(
        self,
        users: dict[str, str],
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        *,
        tls: ssl.SSLContext | None = None,
        lifetime_ms: int = 0,
        impostor: bool = False,
    ) -> None:
        super().__init__(tls)
        self._plain = users
        self._mechanisms = mechanisms
        self._lifetime_ms = lifetime_ms
        self._impostor = impostor
        self._salt = os.urandom(16)
        self.authenticated: list[str] = []

    def on_request(self, session: Session, request: Request) -> bytes | None:
        if request.api is ApiKey.SASL_HANDSHAKE:
            wanted = request.message().mechanism
            session.mechanism = wanted
            code = 0 if wanted in self._mechanisms else error_for_name("UNSUPPORTED_SASL_MECHANISM").code
            return request.answer(Message(error_code=code, mechanisms=list(self._mechanisms)))
        if request.api is ApiKey.SASL_AUTHENTICATE:
            return self._authenticate(session, request)
        if session.user is None and request.api is not ApiKey.API_VERSIONS:
            raise ConnectionResetError
        return None

    def on_answer(self, request: Request, answer: Message) -> None:
        if request.api is not ApiKey.API_VERSIONS:
            super().on_answer(request, answer)
            return
        answer.api_keys += [
            Message(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
            Message(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=2),
        ]

    def _authenticate(self, session: Session, request: Request) -> bytes:
        said: bytes = request.message().auth_bytes
        session.exchange.append(said)
        if session.mechanism == "PLAIN":
            _, user, password = said.decode().split("\0")
            accepted, reply = self._plain.get(user) == password, b""
            session.user = user if accepted else None
        else:
            accepted, reply = self._scram(session)
        if session.user is not None:
            self.authenticated.append(session.user)
        failure = error_for_name("SASL_AUTHENTICATION_FAILED").code
        return request.answer(
            Message(
                error_code=0 if accepted else failure,
                error_message=None if accepted else "Authentication failed: invalid credentials",
                auth_bytes=reply,
                session_lifetime_ms=self._lifetime_ms,
            )
        )

    def _scram(self, session: Session) -> tuple[bool, bytes]:
        name = "sha" + session.mechanism.rpartition("-")[2]
        first_bare = session.exchange[0].decode().removeprefix("n,,")
        fields = dict(part.split("=", 1) for part in first_bare.split(","))
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        nonce = fields["r"] + "server"
        server_first = f"r={nonce},s={base64.b64encode(self._salt).decode()},i={self.ITERATIONS}"
        if len(session.exchange) == 1:
            return True, server_first.encode()
        salted = hashlib.pbkdf2_hmac(name, self._plain.get(user, "?").encode(), self._salt, self.ITERATIONS)
        stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        server_key = hmac.digest(salted, b"Server Key", name)
        without_proof, _, proof = session.exchange[1].decode().rpartition(",p=")
        signed = f"{first_bare},{server_first},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, name)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        known = hashlib.new(name, client_key).digest() == stored_key and without_proof == f"c=biws,r={nonce}"
        if self._impostor:
            known, server_key = True, os.urandom(32)
        session.user = user if known else None
        verifier = base64.b64encode(hmac.digest(server_key, signed, name))
        return known, b"v=" + verifier if known else b""


class Disguise:
    """One real broker that looks like several: each is a proxy, and Metadata says that they are the cluster.

    `leader` leads every partition; the others refuse what only a leader does. With `preferred` the leader
    sends readers to that member, as a broker does with readers of its rack (KIP-392).
    """

    def __init__(self, members: int) -> None:
        self.members = {node: Member(self, node) for node in range(101, 101 + members)}
        self.leader = 101
        self.preferred = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            member.close()

    def serve(self, upstream: int) -> None:
        for member in self.members.values():
            member.serve(upstream)

    @property
    def bootstrap(self) -> str:
        return ",".join(member.address for member in self.members.values())


class Member(Proxy):
    CHANGED = (ApiKey.METADATA,)

    def __init__(self, cluster: Disguise, node: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._node = node
        self.fetches = 0

    def on_request(self, session: Session, request: Request) -> bytes | None:
        leads = self._cluster.leader == self._node
        if request.api is ApiKey.LIST_OFFSETS and not leads:
            refused = [
                Message(
                    name=topic.name,
                    partitions=[
                        Message(partition_index=one.partition_index, error_code=_NOT_LEADER)
                        for one in topic.partitions
                    ],
                )
                for topic in request.message().topics
            ]
            return request.answer(Message(topics=refused))
        if request.api is ApiKey.FETCH:
            topic = request.message().topics[0]
            if leads and self._cluster.preferred >= 0:
                return request.answer(_fetched(topic, preferred_read_replica=self._cluster.preferred))
            if not leads and self._cluster.preferred != self._node:
                return request.answer(_fetched(topic, error_code=_NOT_LEADER))
            self.fetches += 1
        return None

    def on_answer(self, request: Request, answer: Message) -> None:
        answer.brokers = [
            Message(node_id=node, host="127.0.0.1", port=member.port, rack=None)
            for node, member in self._cluster.members.items()
        ]
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_id = self._cluster.leader


_NOT_LEADER = error_for_name("NOT_LEADER_OR_FOLLOWER").code


def _fetched(topic: Message, error_code: int = 0, preferred_read_replica: int = -1) -> Message:
    partition = Message(
        partition_index=topic.partitions[0].partition,
        error_code=error_code,
        high_watermark=-1,
        aborted_transactions=None,
        preferred_read_replica=preferred_read_replica,
        records=b"",
    )
    answered = Message(topic_id=topic.topic_id, partitions=[partition])
    return Message(error_code=0, session_id=0, responses=[answered])
