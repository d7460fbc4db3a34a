"""JSON web tokens, of OAUTHBEARER and of HTTP, checked against the keys (JWKS) of who issues them.

PyJWT checks signature, times, issuer and audience; only signatures with public keys count. Keys come from a
file or over HTTPS, in a thread, and are read again after a while, or when a token names an unknown one.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.error import URLError

from penstock.credentials import LoginFailed
from penstock.errors import ConfigError, MissingExtra

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_LARGEST_SET = 1 << 20
_LARGEST_TOKEN = 64 * 1024
_FETCH_SECONDS = 10.0
# Tokens that name unknown keys do not make this server ask for them more often.
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
        if not url.startswith(("https://", "http://", "file://")):
            raise ConfigError(f"{setting}={url}: must be an https:// or file:// URL")
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
        self._reading = asyncio.Lock()

    async def check(self, token: str) -> tuple[str, int]:
        """The user of a token, and when it ends, in milliseconds; LoginFailed where it does not count."""
        claims = await self.claims(token)
        return claims[self._user_claim], int(claims["exp"] * 1000)

    async def claims(self, token: str) -> dict[str, Any]:
        """All that a token says; LoginFailed where it does not count."""
        if len(token) > _LARGEST_TOKEN:
            raise LoginFailed("a token that is too long")
        try:
            key_id = self._jwt.get_unverified_header(token).get("kid")
        except self._jwt.PyJWTError as error:
            raise LoginFailed(f"a token that cannot be read: {error}") from None
        key = await self._key(key_id)
        if key is None:
            raise LoginFailed("a token signed with a key that is not known")
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
        except (self._jwt.PyJWTError, TypeError, ValueError) as error:
            raise LoginFailed(f"a token that does not count: {error}") from None
        if not isinstance(user, str) or not user:
            raise LoginFailed(f"a token whose {self._user_claim} is not a name")
        return claims

    async def _key(self, key_id: str | None) -> Any:
        now = self._now()
        if now - self._read_at > self._refresh_s or (
            self._find(key_id) is None and now - self._asked_at > _LEAST_SECONDS_BETWEEN
        ):
            async with self._reading:
                if self._asked_at <= now:
                    self._asked_at = self._now()
                    await self._read()
        return self._find(key_id)

    def _find(self, key_id: str | None) -> Any:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _read(self) -> None:
        try:
            self._keys = await asyncio.get_running_loop().run_in_executor(None, self._fetch)
            self._read_at = self._now()
        except (OSError, URLError, ValueError, self._jwt.PyJWTError) as error:
            if not self._keys:
                raise LoginFailed(f"the keys at {self._url} cannot be read: {error}") from None

    def _fetch(self) -> dict[str | None, Any]:
        with urllib.request.urlopen(self._url, timeout=_FETCH_SECONDS) as answer:
            data = answer.read(_LARGEST_SET + 1)
        if len(data) > _LARGEST_SET:
            raise ValueError("the answer is too large")
        found = self._jwt.PyJWKSet.from_dict(json.loads(data))
        return {key.key_id: key for key in found.keys if key.public_key_use in (None, "sig")}
