"""Records denied requests, administrative changes and failed logins in the audit topic, without delaying
requests.

Events go to a bounded journal in memory (`journal.py`), from which they are written to the audit topic
(`produce/topic_writer.py`). A broker that is killed loses the events in its journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.audit.administration import ADMINISTRATION, Administrative, outcomes
from penstock.broker.audit.denials import FAILED
from penstock.broker.audit.event import Entry, Event, Kind, Source, encoded, title
from penstock.broker.audit.journal import Journal
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.errors import ApiError, SaslAuthenticationFailed, UnknownServerError, error_for_code
from penstock.metadata.acls import Operation, ResourceType
from penstock.metadata.image import AUDIT_TOPIC
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.api_table import Api
    from penstock.broker.audit.senders import SendersParts
    from penstock.broker.net.context import RequestContext
    from penstock.broker.net.session import Session
    from penstock.broker.parts import HasClock
    from penstock.broker.produce.topic_writer import TopicWriterParts

    class AuditParts(SendersParts, TopicWriterParts, HasClock, Protocol): ...


log = logging.getLogger("penstock.audit")

_MOST_OF_A_REQUEST = 200
_TOPIC_CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(90 * 24 * 3_600_000)}

_DENIED_CODES = frozenset(error.code for error in FAILED.values())


class Audit:
    def __init__(self, broker: AuditParts, kinds: tuple[str, ...]) -> None:
        self._broker = broker
        self._kinds = frozenset(kinds)
        self._journal = Journal()
        self._writer = TopicWriter(broker, AUDIT_TOPIC, _TOPIC_CONFIGS, self, log)

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
        self._writer.write_soon()

    # -- writing

    def tick(self) -> None:
        """Runs each second: writes the counts of repeated events, and retries what could not be written."""
        self._journal.close_windows(self._broker.clock.now_ms())
        self._writer.write_soon()

    async def close(self) -> None:
        """Write the remaining events if that is possible soon; nothing is written after this."""
        self._journal.close_windows(self._broker.clock.now_ms(), every=True)
        await self._writer.close()

    # -- what the writer takes

    @property
    def has_entries(self) -> bool:
        return self._journal.has_entries

    def records(self, most: int) -> list[Record]:
        return [_record(entry, self._broker.id) for entry in self._journal.first(most)]

    def written(self, count: int) -> None:
        self._journal.written(count)


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
