"""DescribeUserScramCredentials (key 50), version 0 (KIP-554).

Mechanisms and iterations of users; salts and keys are not returned. Without names, all users are described.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller.credentials import MECHANISMS
from penstock.errors import DuplicateResource, ResourceNotFound
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage

_NUMBERS = {name: number for number, name in MECHANISMS.items()}


def handle(broker: HasImage, context: RequestContext, request: Message) -> Message:
    known: dict[str, list[Message]] = {}
    for (mechanism, user), one in sorted(broker.image.credentials.items()):
        info = Message(mechanism=_NUMBERS[mechanism], iterations=one.iterations)
        known.setdefault(user, []).append(info)
    asked = [one.name for one in request.users or ()]
    results = []
    for user in dict.fromkeys(asked or known):
        code, message = 0, None
        if asked.count(user) > 1:
            code = DuplicateResource.code
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        elif user not in known:
            code = ResourceNotFound.code
            message = f"Attempt to describe a user credential that does not exist: {user}"
        infos = [] if code else known[user]
        results.append(Message(user=user, error_code=code, error_message=message, credential_infos=infos))
    return Message(throttle_time_ms=0, error_code=0, error_message=None, results=results)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=None, results=[])


register(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(1), handle, error_response)
