"""Checks JSON web tokens (OAUTHBEARER and HTTP) against the keys (JWKS) of their issuer.

PyJWT checks signature, times, issuer and audience; only public-key signatures are accepted. Keys come from a
file or over HTTPS. A thread reads them, and re-reads them periodically or when a token names an unknown key.
Only a login that needs an unknown key waits for that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import weakref
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from penstock.credentials import LoginFailed
from penstock.credentials.endpoints import is_safe, opener
from penstock.errors import ConfigError, MissingExtra

log = logging.getLogger(__name__)

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
# JSON from elsewhere: of other types, too deeply nested, or with numbers that are infinite.
_UNREADABLE = (TypeError, ValueError, RecursionError, OverflowError)
_LARGEST_SET = 1 << 20
_LARGEST_TOKEN = 64 * 1024
_FETCH_SECONDS = 10.0
# Limits how often keys are re-read, for tokens with unknown keys and for endpoints that fail.
_LEAST_SECONDS_BETWEEN = 10.0


class JwksTokens:
    def __init__(
        self,
        url: str,
        *,
        setting: str = "sasl.oauthbearer.jwks.endpoint.url",
        issuer: str | None,
        audience: tuple[str, ...],
        user_claim: str = "sub",
        skew_s: int = 30,
        refresh_s: float = 3600.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        try:
            import jwt
        except ImportError:
            raise ConfigError(str(MissingExtra("SASL OAUTHBEARER", "PyJWT", "oauth"))) from None
        if not url.startswith("file://") and not is_safe(url):
            raise ConfigError(f"{setting}={url}: must be an https:// or file:// URL (http:// on loopback)")
        self._jwt = jwt
        self._url = url
        self._issuer = issuer
        self._audience = audience
        self._user_claim = user_claim
        self._skew_s = skew_s
        self._refresh_s = refresh_s
        self._now = now
        self._keys: dict[str | None, Any] = {}
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._next: asyncio.TimerHandle | None = None
        self._trouble: Exception | None = None

    async def check(self, token: str) -> tuple[str, int]:
        """The user of a token and its expiry in milliseconds. Raises LoginFailed for an invalid token."""
        claims = await self.claims(token)
        return claims[self._user_claim], int(claims["exp"] * 1000)

    async def claims(self, token: str) -> dict[str, Any]:
        """All claims of a token. Raises LoginFailed for an invalid token."""
        if len(token) > _LARGEST_TOKEN:
            raise LoginFailed("the token is too long")
        try:
            key_id = self._jwt.get_unverified_header(token).get("kid")
        except (self._jwt.PyJWTError, *_UNREADABLE) as error:
            raise LoginFailed(f"the token cannot be read: {error}") from None
        key = await self._key(key_id)
        if key is None:
            raise LoginFailed("the token is signed with an unknown key")
        return await asyncio.get_running_loop().run_in_executor(None, self._claims, token, key)

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                issuer=self._issuer,
                audience=list(self._audience) or None,
                leeway=self._skew_s,
                options={
                    "require": ["exp", self._user_claim],
                    "verify_aud": bool(self._audience),
                    "verify_iss": self._issuer is not None,
                    "verify_sub": self._user_claim == "sub",
                },
            )
            user, _ = claims[self._user_claim], int(claims["exp"] * 1000)
        except (self._jwt.PyJWTError, *_UNREADABLE) as error:
            raise LoginFailed(f"the token is not valid: {error}") from None
        if not isinstance(user, str) or not user:
            raise LoginFailed(f"a token whose {self._user_claim} is not a name")
        return claims

    async def _key(self, key_id: str | None) -> Any:
        known = self._find(key_id)
        if known is not None and self._now() - self._read_at <= self._refresh_s:
            return known
        reading = self._read_again()
        if known is not None:
            return known
        if reading is not None:
            await asyncio.shield(reading)  # others may be waiting for it, too
        if not self._keys:
            raise LoginFailed(f"the keys at {self._url} cannot be read: {self._trouble}")
        return self._find(key_id)

    def _find(self, key_id: str | None) -> Any:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _read_again(self) -> asyncio.Task[None] | None:
        """The task that re-reads the keys; None if the last read is too recent."""
        if self._reading is None or self._reading.done():
            now = self._now()
            if now - self._asked_at <= _LEAST_SECONDS_BETWEEN:
                return None
            self._asked_at = now
            loop = asyncio.get_running_loop()
            self._reading = loop.create_task(self._read())
            # So that revoked keys do not stay valid until the next login.
            if self._next is not None:
                self._next.cancel()
            later = max(self._refresh_s, _LEAST_SECONDS_BETWEEN)
            self._next = loop.call_later(later, _refresh, weakref.ref(self))
        return self._reading

    async def _read(self) -> None:
        try:
            self._keys = await asyncio.get_running_loop().run_in_executor(None, self._fetch)
            self._read_at = self._now()
        except (OSError, HTTPException, AttributeError, self._jwt.PyJWTError, *_UNREADABLE) as error:
            log.warning("the keys of tokens at %s cannot be read: %s", self._url, error)
            self._trouble = error

    def _fetch(self) -> dict[str | None, Any]:
        with opener().open(self._url, timeout=_FETCH_SECONDS) as answer:
            data = answer.read(_LARGEST_SET + 1)
        if len(data) > _LARGEST_SET:
            raise ValueError("the answer is too large")
        found = self._jwt.PyJWKSet.from_dict(json.loads(data))
        # A token may not be signed with a shared secret, and a secret in a set of keys is none.
        public = [key for key in found.keys if key.key_type != "oct" and key.public_key_use in (None, "sig")]
        return {key.key_id: key for key in public}


def _refresh(tokens: weakref.ref[JwksTokens]) -> None:
    found = tokens()
    if found is not None:
        found._read_again()
