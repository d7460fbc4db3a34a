"""Records denied requests, administrative changes and failed logins in the audit topic, without delaying
requests.

Events go to a bounded journal in memory (`journal.py`). One task writes them to the leader of the audit
topic, on whichever broker that is. Events that cannot be written stay in the journal and are retried each
second. A broker that is killed loses the events in its journal; a write whose response is lost is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.audit.administration import ADMINISTRATION, Administrative, outcomes
from penstock.broker.audit.denials import FAILED
from penstock.broker.audit.event import Entry, Event, Kind, Source, encoded, title
from penstock.broker.audit.journal import Journal
from penstock.broker.produce.leader_append import append_to_leader, led_partition
from penstock.errors import (
    ApiError,
    PenstockError,
    SaslAuthenticationFailed,
    UnknownServerError,
    error_for_code,
)
from penstock.metadata.acls import Operation, ResourceType
from penstock.metadata.image import AUDIT_TOPIC
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.api_table import Api
    from penstock.broker.audit.senders import SendersParts
    from penstock.broker.net.context import RequestContext
    from penstock.broker.net.session import Session
    from penstock.broker.parts import CanCreateInternalTopics, HasClock

    class AuditParts(SendersParts, CanCreateInternalTopics, HasClock, Protocol): ...


log = logging.getLogger("penstock.audit")

RETRY_MS = 1_000
_BATCH = 500
_MOST_OF_A_REQUEST = 200
_CLOSE_SECONDS = 2.0
_TOPIC_CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(90 * 24 * 3_600_000)}

_DENIED_CODES = frozenset(error.code for error in FAILED.values())


class Audit:
    def __init__(self, broker: AuditParts, kinds: tuple[str, ...]) -> None:
        self._broker = broker
        self._kinds = frozenset(kinds)
        self._journal = Journal()
        self._writing: asyncio.Task[None] | None = None
        self._trouble = ""
        self._closed = False

    # -- events

    def denied(self, context: RequestContext, operation: int, resource_type: int, name: str) -> None:
        if Kind.DENIED in self._kinds:
            error = FAILED[resource_type].kafka_name
            self._add(
                Event(
                    Kind.DENIED, _source(context), _api(context), title(Operation(operation).name),
                    title(ResourceType(resource_type).name), name, error,
                )
            )  # fmt: skip

    def login_failed(self, session: Session, mechanism: str) -> None:
        """Without the user name that the client sent: it is not verified, and may be a mistyped password."""
        if Kind.AUTHENTICATION in self._kinds:
            source = Source(str(session.principal), session.peer.rpartition(":")[0], session.listener, None)
            if mechanism == "TLS":
                event = Event(
                    Kind.AUTHENTICATION, source, "TLS", "Handshake", None, None, "SSL_HANDSHAKE_FAILED"
                )
            else:
                api, error = title(ApiKey.SASL_AUTHENTICATE.name), SaslAuthenticationFailed.kafka_name
                event = Event(Kind.AUTHENTICATION, source, api, mechanism, None, None, error)
            self._add(event)

    def watched(self, api: Api, handler: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Wraps the handler of an administrative API so that its outcome is recorded; returns others
        unchanged."""
        administrative = ADMINISTRATION.get(api.key) if Kind.ADMIN in self._kinds else None
        if administrative is None:
            return handler
        inner = handler or api.handle_message or api.handle

        def handle(broker: AuditParts, context: RequestContext, request: Message) -> Any:
            if not administrative.concerns(broker, context, request):
                return inner(broker, context, request)
            try:
                answer = inner(broker, context, request)
            except Exception as error:
                self._administered(administrative, context, request, _code(error))
                raise
            if isinstance(answer, Message):
                self._administered(administrative, context, request, answer)
                return answer
            return later(context, request, answer)

        async def later(context: RequestContext, request: Message, answering: Any) -> Any:
            try:
                answer = await answering
            except Exception as error:
                self._administered(administrative, context, request, _code(error))
                raise
            self._administered(administrative, context, request, answer)
            return answer

        return handle

    def _administered(
        self, api: Administrative, context: RequestContext, request: Message, answer: Message | int
    ) -> None:
        try:
            source, name, operation = _source(context), _api(context), title(api.operation.name)
            for number, (target, code) in enumerate(outcomes(api, request, answer)):
                if code in _DENIED_CODES and Kind.DENIED in self._kinds:
                    continue  # already recorded as denied
                error = error_for_code(code).kafka_name if code else None
                event = Event(
                    Kind.ADMIN, source, name, operation, target.type, target.name, error, target.detail,
                    api.is_frequent,
                )  # fmt: skip
                if number < _MOST_OF_A_REQUEST:
                    self._add(event)
                else:  # fold a request with thousands of topics, to leave room for other requests
                    self._journal.drop(self._broker.clock.now_ms())
        except Exception:  # the border: a failure of the audit must not fail the request
            log.exception("%s was not recorded", context)

    def _add(self, event: Event) -> None:
        self._journal.add(event, self._broker.clock.now_ms())
        self._write_soon()

    # -- writing

    def tick(self) -> None:
        """Runs each second: writes the counts of repeated events, and retries what could not be written."""
        self._journal.close_windows(self._broker.clock.now_ms())
        self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None and not self._closed and self._journal.has_entries:
            self._writing = self._broker.loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while entries := self._journal.first(_BATCH):
                await self._write(entries)
                self._journal.written(len(entries))
                if self._trouble:
                    log.info("%s can be written again", AUDIT_TOPIC)
                self._trouble = ""
        except PenstockError as error:
            if str(error) != self._trouble:
                log.warning("%s cannot be written now: %s", AUDIT_TOPIC, error)
            self._trouble = str(error)
        except Exception:  # the border: the next tick retries
            log.exception("%s cannot be written", AUDIT_TOPIC)
        finally:
            self._writing = None

    async def _write(self, entries: list[Entry]) -> None:
        broker = self._broker
        if AUDIT_TOPIC not in broker.image.topics:
            await broker.create_internal_topic(AUDIT_TOPIC, 1, 1, _TOPIC_CONFIGS)
        index, leader = led_partition(broker, AUDIT_TOPIC, 0)
        records = [_record(entry, broker.id) for entry in entries]
        await append_to_leader(broker, AUDIT_TOPIC, index, leader, bytearray(build_batch(records)))

    async def close(self) -> None:
        """Write the remaining events if that is possible soon; nothing is written after this."""
        self._journal.close_windows(self._broker.clock.now_ms(), every=True)
        self._write_soon()
        self._closed = True
        if self._writing is not None:
            _, late = await asyncio.wait([self._writing], timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()


def _record(entry: Entry, broker_id: int) -> Record:
    key = None if entry.event is None else entry.event.source.principal.encode()
    return Record(0, entry.last_ms, key, encoded(entry, broker_id))


def _source(context: RequestContext) -> Source:
    host = context.peer.rpartition(":")[0]
    return Source(str(context.principal), host, context.listener, context.client_id)


def _api(context: RequestContext) -> str:
    return title(ApiKey(context.api_key).name)


def _code(error: Exception) -> int:
    return error.code if isinstance(error, ApiError) else UnknownServerError.code
