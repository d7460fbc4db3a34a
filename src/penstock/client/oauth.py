"""Tokens for SASL OAUTHBEARER: from a file, an OAuth 2.0 token endpoint, or AWS's signer for MSK IAM.

`token_source` reads the settings, with Java's or librdkafka's names. A source can be sent to another machine;
`current` gets the token there and caches it for most of its lifetime, for all connections of the process.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from penstock.client.errors import AuthenticationFailed, BadClientSetting, ConnectionFailed
from penstock.credentials.endpoints import is_safe, opener
from penstock.errors import MissingExtra

OAUTHBEARER, AWS_MSK_IAM = "OAUTHBEARER", "AWS_MSK_IAM"
TOKEN_MECHANISMS = (OAUTHBEARER, AWS_MSK_IAM)

_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_CLIENT_SECRET = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
_LARGEST_ANSWER = 1 << 20
_TIMEOUT_SECONDS = 10.0
_LIFE_PART = 0.8
_UNKNOWN_LIFE_SECONDS = 300.0
"""For a token without an expiry."""


@dataclass(frozen=True, slots=True)
class Token:
    value: str = field(repr=False)
    expires: float
    """In seconds since 1970."""


class TokenSource(Protocol):
    """Where tokens come from. Frozen: equal sources share their tokens."""

    @property
    def extensions(self) -> tuple[tuple[str, str], ...]:
        """The SASL extensions (RFC 7628) to send."""

    def fetch(self) -> Token: ...


@dataclass(frozen=True, slots=True)
class FileTokens:
    """A file with one token that another program keeps up to date."""

    path: str
    extensions: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> Token:
        try:
            with open(self.path, encoding="ascii") as file:
                value = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise AuthenticationFailed(f"{_URL}: the token file {self.path} cannot be read: {why}") from error
        return _token(value, None, f"the token file {self.path}")


@dataclass(frozen=True, slots=True)
class EndpointTokens:
    """OAuth 2.0's client credentials grant (RFC 6749, 4.4)."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca: str | None = field(default=None, repr=False)
    """PEM text; None trusts the system's authorities."""
    extensions: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> Token:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        login = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}".encode()
        request = urllib.request.Request(
            self.url,
            urlencode(form).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(login).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with opener(self.ca).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body = answer.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            said = _reason(error.read(_LARGEST_ANSWER))
            kind = ConnectionFailed if error.code >= 500 else AuthenticationFailed
            raise kind(f"the token endpoint {self.url} answered {error.code}{said}") from None
        except (OSError, HTTPException) as error:
            raise ConnectionFailed(f"the token endpoint {self.url} cannot be reached: {error}") from error
        try:
            fields = json.loads(body)
            value, life = fields["access_token"], fields.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AuthenticationFailed(
                f"the token endpoint {self.url} answered without an access_token"
            ) from None
        expires = time.time() + float(life) if isinstance(life, int | float) else None
        return _token(value, expires, f"the token endpoint {self.url}")


@dataclass(frozen=True, slots=True)
class MskIamTokens:
    """AWS MSK's IAM access control: a request to the cluster, signed with AWS credentials, is the token."""

    region: str
    profile: str = ""
    role: str = ""
    session: str = ""
    extensions: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> Token:
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
        except ImportError as error:
            missing = MissingExtra(f"sasl.mechanism={AWS_MSK_IAM}", error.name, "aws")
            raise BadClientSetting(str(missing)) from error
        try:
            if self.role:
                name = self.session or "penstock"
                made = signer.generate_auth_token_from_role_arn(self.region, self.role, name)
            elif self.profile:
                made = signer.generate_auth_token_from_profile(self.region, self.profile)
            else:
                made = signer.generate_auth_token(self.region)
        except Exception as error:  # the signer's libraries have no common base class of errors
            first = str(error).strip().partition("\n")[0]
            raise AuthenticationFailed(f"AWS's signer has no token for MSK: {first}") from error
        value, expires_ms = made
        return Token(value, expires_ms / 1000)


def token_source(settings: Mapping[str, str], mechanism: str, jaas: Mapping[str, str]) -> TokenSource:
    """Raises BadClientSetting if the settings do not say where tokens come from."""
    if mechanism == AWS_MSK_IAM:
        return MskIamTokens(
            _region(settings, jaas),
            jaas.get("awsProfileName", ""),
            jaas.get("awsRoleArn", ""),
            jaas.get("awsRoleSessionName", ""),
        )
    url = settings.get(_URL, "").strip()
    if not url:
        raise BadClientSetting(
            f"sasl.mechanism={OAUTHBEARER} needs {_URL}: the address of a token endpoint, or file:///PATH of "
            "a file with a token"
        )
    extensions = _extensions(settings, jaas)
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FileTokens(unquote(parts.path), extensions)
    if not is_safe(url):
        raise BadClientSetting(
            f"{_URL}={url}: must begin with https:// or file:///, as a secret is sent to it"
        )
    client_id = _first(settings, _CLIENT_ID) or jaas.get("clientId", "")
    secret = _first(settings, _CLIENT_SECRET) or jaas.get("clientSecret", "")
    if not client_id or not secret:
        raise BadClientSetting(
            f"{_URL} needs {_CLIENT_ID[0]} and {_CLIENT_SECRET[0]}, or clientId and clientSecret in "
            "sasl.jaas.config"
        )
    scope = settings.get("sasl.oauthbearer.scope") or jaas.get("scope", "")
    return EndpointTokens(url, client_id, secret, scope, _ca(settings), extensions)


_cached: dict[TokenSource, tuple[float, Token]] = {}
_fetching = threading.Lock()


def current(source: TokenSource) -> Token:
    """A token that is still valid for a while; fetched again after most of its lifetime. For any thread."""
    with _fetching:
        found = _cached.get(source)
        if found is not None and time.monotonic() < found[0]:
            return found[1]
        token = source.fetch()
        left = max(0.0, token.expires - time.time())
        # The file may be replaced at any time before its token expires, so it is read for each login.
        keep = 0.0 if isinstance(source, FileTokens) else left * _LIFE_PART
        _cached[source] = (time.monotonic() + keep, token)
        return token


def forget(source: TokenSource, token: Token) -> None:
    """The broker has rejected the token: the next login gets a new one."""
    with _fetching:
        if source in _cached and _cached[source][1] == token:
            del _cached[source]


def _token(value: object, expires: float | None, where: str) -> Token:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.~+/=-]+", value, re.ASCII):
        raise AuthenticationFailed(f"{where} has no token")
    return Token(value, _expiry(value) or expires or time.time() + _UNKNOWN_LIFE_SECONDS)


def _expiry(value: str) -> float | None:
    """The claim `exp` of a JWT. The signature is not verified here; that is up to the broker."""
    parts = value.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def _reason(body: bytes) -> str:
    """The error fields that RFC 6749 (5.2) defines; nothing else of the response is shown."""
    try:
        fields = json.loads(body)
        words = [str(fields[name])[:200] for name in ("error", "error_description") if fields.get(name)]
    except (ValueError, TypeError, AttributeError):
        return ""
    return f": {', '.join(words)}" if words else ""


def _first(settings: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((settings[name] for name in names if settings.get(name)), "")


def _extensions(settings: Mapping[str, str], jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {
        name.removeprefix("extension_"): value
        for name, value in jaas.items()
        if name.startswith("extension_")
    }
    for word in filter(None, settings.get("sasl.oauthbearer.extensions", "").split(",")):
        name, equals, value = word.strip().partition("=")
        if not equals:
            raise BadClientSetting(f"sasl.oauthbearer.extensions: '{word}' is not of the form name=value")
        found[name] = value
    return tuple(sorted(found.items()))


def _ca(settings: Mapping[str, str]) -> str | None:
    if text := settings.get("https.ca.pem"):
        return text
    path = settings.get("https.ca.location")
    if not path:
        return None
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise BadClientSetting(f"https.ca.location={path}: {error.strerror}") from error


def _region(settings: Mapping[str, str], jaas: Mapping[str, str]) -> str:
    given = jaas.get("awsRegion") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if given:
        return given
    found = re.search(
        r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com", settings.get("bootstrap.servers", "")
    )
    if found is None:
        raise BadClientSetting(
            f"sasl.mechanism={AWS_MSK_IAM} needs the region of the cluster: set AWS_REGION"
        )
    return found[1]
