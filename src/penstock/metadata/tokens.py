"""Delegation tokens (KIP-48) as stored in the metadata: owners and lifetimes. Values only.

The HMAC of a token, which is its password, is not stored: it is computed from the token's id and the secret
of the brokers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

PREFIX = "/credentials/tokens/"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """Principals are written as "User:alice"; times are milliseconds since 1970."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def concerns(self, principal: str) -> bool:
        """Whether the principal may describe, renew and expire the token."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms or self.max_ms < now_ms


def token_path(token_id: str) -> str:
    return PREFIX + token_id


def token_value(token: DelegationToken) -> bytes:
    value = {
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issued": token.issued_ms,
        "expires": token.expires_ms,
        "max": token.max_ms,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def read_token(token_id: str, value: bytes) -> DelegationToken:
    read = json.loads(value)
    return DelegationToken(
        token_id, read["owner"], read["requester"], tuple(read["renewers"]),
        read["issued"], read["expires"], read["max"],
    )  # fmt: skip
