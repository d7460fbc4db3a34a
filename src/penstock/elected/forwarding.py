"""Forwards requests to the leader and returns its responses unchanged.

The leader reports the offset of the write in a header. The server that forwarded the request waits until its
own state has that offset, so that a client reads its own writes.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from penstock.elected.membership import Identity

log = logging.getLogger(__name__)

FORWARDED = "x-forward"
OFFSET = "x-penstock-offset"
_PASSED_ON = (
    "content-type",
    "accept",
    "authorization",
    "confluent-accept-unknown-properties",
    "x-request-id",
)


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The leader's response."""

    status: int
    body: bytes
    content_type: str
    offset: int | None


class Forwarder:
    """A pool of connections to the leaders there are in the life of a server.

    `url` is this server's; `not_leader` says by an answer's status and body that its sender does not lead;
    `failed` makes the error for a leader that gave no answer.
    """

    def __init__(
        self,
        url: str,
        *,
        verify: ssl.SSLContext | bool,
        timeout: float,
        not_leader: Callable[[int, bytes], bool],
        failed: Callable[[str], Exception],
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._not_leader = not_leader
        self._failed = failed
        self._client = httpx.AsyncClient(
            verify=verify,
            timeout=httpx.Timeout(timeout, connect=5.0),
            trust_env=False,  # a proxy for outside addresses cannot reach the leader
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
        )

    async def send(
        self,
        leader: Identity,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        repeatable: bool,
    ) -> Forwarded | None:
        """The leader's answer; None when it is not the leader, or was not reached: ask the group again.

        A leader that died without an answer may have carried the request out. One that is `repeatable`
        (registering: the same schema gets the same id) is sent to the next leader; else it is an error.
        """
        if not leader.is_as_safe_as(self._url):
            log.error("the leader %s has no TLS: not forwarding a request that came over TLS", leader.url)
            return None
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        try:
            answer = await self._client.request(
                method, leader.url + path, headers={**passed, FORWARDED: "true"}, content=body
            )
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise self._failed(
                    f"The certificate of the leader {leader.url} is not trusted: {error}. Start this "
                    "server with --tls-ca FILE, the authority of the group's certificates"
                ) from error
            log.info("the leader %s is not reachable: %s", leader.url, error)
            return None
        except (httpx.HTTPError, ssl.SSLError) as error:
            if repeatable and not isinstance(error, httpx.TimeoutException):
                log.info("the leader %s did not respond: %r", leader.url, error)
                return None
            raise self._failed(
                f"Error while forwarding the request to the leader {leader.url}: {error!r}"
            ) from error
        if self._not_leader(answer.status_code, answer.content):
            return None
        offset = answer.headers.get(OFFSET)
        return Forwarded(
            answer.status_code,
            answer.content,
            answer.headers.get("content-type", ""),
            int(offset) if offset and offset.isdecimal() else None,
        )

    async def close(self) -> None:
        await self._client.aclose()
