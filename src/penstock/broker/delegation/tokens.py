"""Delegation tokens on this broker: HMACs, logins, and what the four APIs share.

The HMAC of a token is computed from its id and `delegation.token.secret.key`, which all brokers share:
changing the secret invalidates all tokens. Logins use SCRAM with the token id as user and the base64 HMAC as
password.
"""

from __future__ import annotations

import base64
import hmac
import logging
import secrets
import uuid
from typing import TYPE_CHECKING, Protocol

from penstock.broker.audit import denials
from penstock.broker.security.authentication.principal import ANONYMOUS
from penstock.controller import tokens as plans
from penstock.credentials.scram import MIN_ITERATIONS, ScramCredential, credential, salted_password
from penstock.errors import (
    ApiError,
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
)
from penstock.metadata.acls import Operation, ResourceType
from penstock.metadata.tokens import DelegationToken

if TYPE_CHECKING:
    from penstock.broker.net.context import RequestContext
    from penstock.broker.parts import (
        CanUseThreads,
        HasAudit,
        HasAuthorizer,
        HasClock,
        HasConfig,
        HasController,
        HasId,
    )

    class TokensParts(
        CanUseThreads, HasAudit, HasAuthorizer, HasClock, HasConfig, HasController, HasId, Protocol
    ): ...


log = logging.getLogger(__name__)

_MAX_CREDENTIALS = 10_000


class DelegationTokens:
    def __init__(self, broker: TokensParts) -> None:
        self._broker = broker
        key: str | None = broker.config.delegation_token_secret_key
        self._secret = None if key is None else key.encode()
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    # -- logins

    async def login(self, mechanism: str, token_id: str) -> tuple[DelegationToken, ScramCredential] | None:
        """The token and its SCRAM credential; None for a token that is unknown or has expired."""
        token = self._broker.controller.image.tokens.get(token_id)
        if token is None or self._secret is None or token.is_expired(self._broker.clock.now_ms()):
            return None
        known = self._credentials.get((mechanism, token_id))
        if known is None:
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            known = await self._broker.in_thread(_credential, mechanism, password)
            if len(self._credentials) >= _MAX_CREDENTIALS:
                self._credentials.clear()
            self._credentials[mechanism, token_id] = known
        return token, known

    def hmac_of(self, token_id: str) -> bytes:
        assert self._secret is not None
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    # -- the APIs

    def check_allowed(self, context: RequestContext) -> None:
        """As in Kafka: the client must have logged in, and not with a token, so that no token creates
        another."""
        protocol = self._broker.config.protocols[context.listener]
        principal = context.principal
        if protocol == "PLAINTEXT" or principal.by_token or (protocol == "SSL" and principal == ANONYMOUS):
            raise DelegationTokenRequestNotAllowed()

    def check_enabled(self) -> None:
        if self._secret is None:
            raise DelegationTokenAuthDisabled()

    async def create(
        self, context: RequestContext, owner: str, renewers: list[tuple[str, str]], asked_ms: int
    ) -> DelegationToken:
        broker, requester = self._broker, str(context.principal)
        self.check_allowed(context)
        if owner != requester and not self._allows(
            context, Operation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            denials.denied(broker, context, Operation.CREATE_TOKENS, ResourceType.USER, owner)
            raise DelegationTokenAuthorizationFailed()
        self.check_enabled()
        token = plans.new_token(
            str(uuid.uuid4()), owner, requester, renewers, broker.clock.now_ms(), asked_ms=asked_ms,
            max_lifetime_ms=broker.config.delegation_token_max_lifetime_ms,
            expiry_ms=broker.config.delegation_token_expiry_time_ms,
        )  # fmt: skip
        await broker.controller.create_token(token)
        return token

    async def renew(self, context: RequestContext, given: bytes, period_ms: int) -> int:
        """Renews the token; returns its new expiry."""
        now = self._broker.clock.now_ms()
        change = plans.renewal(
            str(context.principal), now, period_ms=period_ms,
            expiry_ms=self._broker.config.delegation_token_expiry_time_ms,
        )  # fmt: skip
        token = await self._change(context, given, change)
        assert token is not None
        return token.expires_ms

    async def expire(self, context: RequestContext, given: bytes, period_ms: int) -> int:
        now = self._broker.clock.now_ms()
        token = await self._change(
            context, given, plans.expiry(str(context.principal), now, period_ms=period_ms)
        )
        return now if token is None else token.expires_ms

    async def _change(
        self, context: RequestContext, given: bytes, change: plans.Change
    ) -> DelegationToken | None:
        self.check_allowed(context)
        self.check_enabled()
        ids = list(self._broker.controller.image.tokens)
        # With many tokens, finding the one with this HMAC takes a while.
        token_id = await self._broker.in_thread(self._find, ids, given)
        return await self._broker.controller.alter_token(token_id, change)

    def _find(self, ids: list[str], given: bytes) -> str | None:
        return next((one for one in ids if hmac.compare_digest(self.hmac_of(one), given)), None)

    def visible(self, context: RequestContext, owners: list[str] | None) -> list[DelegationToken]:
        """The tokens that the client may see; if `owners` are given, only those with such an owner or
        renewer."""
        self.check_allowed(context)
        self.check_enabled()
        principal = str(context.principal)
        return [
            token
            for token in self._broker.controller.image.tokens.values()
            if (owners is None or any(token.concerns(owner) for owner in owners))
            and (
                token.concerns(principal)
                or self._allows(context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
                or self._allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
            )
        ]

    def _allows(self, context: RequestContext, operation: int, resource_type: int, name: str) -> bool:
        authorizer = self._broker.authorizer
        host = context.peer.rpartition(":")[0]
        return authorizer is None or authorizer.allows(
            str(context.principal), host, operation, resource_type, name
        )

    # -- time

    async def remove_expired(self) -> None:
        """Runs on the controller only, so that one broker removes expired tokens."""
        controller = self._broker.controller
        if controller.image.controller_id != self._broker.id:
            return
        for token_id in plans.expired(controller.image.tokens, self._broker.clock.now_ms()):
            try:
                await controller.alter_token(token_id, lambda token: None)
            except ApiError as error:
                log.info("could not delete the expired token %s yet: %s", token_id, error)


def _credential(mechanism: str, password: str) -> ScramCredential:
    salt = secrets.token_bytes(20)
    salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
    return credential(mechanism, salted, salt, MIN_ITERATIONS)


def split(principal: str) -> tuple[str, str]:
    """Type and name."""
    kind, _, name = principal.partition(":")
    return kind, name
