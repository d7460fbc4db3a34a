"""Plans changes of delegation tokens, as Kafka does: lifetimes, and who may renew or expire a token. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from penstock.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
)
from penstock.metadata.tokens import DelegationToken

Change = Callable[[DelegationToken], DelegationToken | None]
"""Returns the changed token, or None to delete it. Raises an ApiError if the change is rejected."""


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[tuple[str, str]],
    now_ms: int,
    *,
    asked_ms: int,
    max_lifetime_ms: int,
    expiry_ms: int,
) -> DelegationToken:
    """`renewers` are pairs of type and name; `asked_ms` is the requested lifetime, -1 for the maximum."""
    if not owner.startswith("User:") or any(kind != "User" for kind, _ in renewers):
        raise InvalidPrincipalType("Only users can own or renew a delegation token.")
    lifetime = min(max_lifetime_ms, asked_ms) if asked_ms > 0 else max_lifetime_ms
    end = now_ms + lifetime
    names = tuple(dict.fromkeys(f"{kind}:{name}" for kind, name in renewers))
    return DelegationToken(token_id, owner, requester, names, now_ms, min(end, now_ms + expiry_ms), end)


def renewal(principal: str, now_ms: int, *, period_ms: int, expiry_ms: int) -> Change:
    """`period_ms` is the requested period; -1 means the broker's, which is also the maximum."""

    def renew(token: DelegationToken) -> DelegationToken:
        _check(token, principal, now_ms)
        period = min(expiry_ms, period_ms) if period_ms > 0 else expiry_ms
        return replace(token, expires_ms=min(token.max_ms, now_ms + period))

    return renew


def expiry(principal: str, now_ms: int, *, period_ms: int) -> Change:
    """A negative period deletes the token immediately, even one that has expired."""

    def expire(token: DelegationToken) -> DelegationToken | None:
        if period_ms < 0 and token.concerns(principal):
            return None
        _check(token, principal, now_ms)
        return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

    return expire


def expired(tokens: Mapping[str, DelegationToken], now_ms: int) -> list[str]:
    return [token.id for token in tokens.values() if token.is_expired(now_ms)]


def found(tokens: Mapping[str, DelegationToken], token_id: str | None) -> DelegationToken:
    token = None if token_id is None else tokens.get(token_id)
    if token is None:
        raise DelegationTokenNotFound()
    return token


def _check(token: DelegationToken, principal: str, now_ms: int) -> None:
    if not token.concerns(principal):
        raise DelegationTokenOwnerMismatch()
    if token.is_expired(now_ms):
        raise DelegationTokenExpired()
