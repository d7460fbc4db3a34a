"""ListTransactions (key 66), versions 0-2 (KIP-664).

1  only those that run longer than a duration (KIP-994)   2  only ids that match a pattern (KIP-1152)

Lists the transactional ids that this broker coordinates. A state that does not exist is returned as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import InvalidRegularExpression
from penstock.regex.matching import Regex, Work
from penstock.transactions.listing import Filters, listed
from penstock.transactions.state import STATE_OF_LABEL
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasClock, HasTransactions

    class ListTransactionsParts(HasClock, HasTransactions, Protocol): ...


async def handle(broker: ListTransactionsParts, context: RequestContext, request: Message) -> Message:
    unknown = [label for label in request.state_filters if label not in STATE_OF_LABEL]
    states = {STATE_OF_LABEL[label] for label in request.state_filters if label in STATE_OF_LABEL}
    if request.state_filters and not states:
        return _listed(unknown, [])
    pattern = request.transactional_id_pattern
    filters = Filters(
        states,
        frozenset(request.producer_id_filters),
        request.duration_filter,
        _matching(pattern) if pattern else None,
    )
    now = broker.clock.now_ms()
    found = await broker.transactions.read_all(lambda shard: listed(shard.transactions, filters, now))
    return _listed(unknown, list(chain.from_iterable(found)))


def _listed(unknown: list[str], found: list[Message]) -> Message:
    return Message(throttle_time_ms=0, error_code=0, unknown_state_filters=unknown, transaction_states=found)


def _matching(pattern: str) -> Callable[[str], bool]:
    regex, work = Regex(pattern), Work()

    def matches(transactional_id: str) -> bool:
        if work.is_over:
            raise InvalidRegularExpression("the pattern takes too long to match; simplify it")
        return regex.matches(transactional_id, work)

    return matches


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[])


register(ApiKey.LIST_TRANSACTIONS, range(3), handle, error_response)
