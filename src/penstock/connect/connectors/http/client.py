"""An HTTP client: logins, TLS, size-limited responses, and which errors are retriable."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from penstock.connect.api import ConfigType, ConnectError, Field, OneOf, Range, RetriableError, parse
from penstock.connect.connectors.tls import client_context, reason

CLIENT = (
    Field(
        "auth.type",
        default="none",
        doc="none, basic (connection.user), bearer (bearer.token) or oauth2 (client credentials).",
        validator=OneOf("none", "basic", "bearer", "oauth2", "NONE", "BASIC", "BEARER", "OAUTH2"),
    ),
    Field("connection.user", default="", doc="The user, for auth.type=basic."),
    Field("connection.password", ConfigType.PASSWORD, "", "The password, for auth.type=basic."),
    Field("bearer.token", ConfigType.PASSWORD, "", "The token, for auth.type=bearer."),
    Field("oauth2.token.url", default="", doc="Where tokens come from, for auth.type=oauth2."),
    Field("oauth2.client.id", default="", doc="The client's id, for auth.type=oauth2."),
    Field("oauth2.client.secret", ConfigType.PASSWORD, "", "The client's secret, for auth.type=oauth2."),
    Field("oauth2.client.scope", default="", doc="The scope to ask for, for auth.type=oauth2."),
    Field("http.connect.timeout.ms", ConfigType.INT, 30_000, "How long connecting may take.", Range(1)),
    Field("http.request.timeout.ms", ConfigType.INT, 30_000, "How long a response may take.", Range(1)),
    Field("https.ssl.truststore.location", default="", doc="A PEM file; default: the system's authorities."),
    Field("https.ssl.keystore.location", default="", doc="A PEM file with a certificate and its key."),
    Field("https.ssl.key.password", ConfigType.PASSWORD, "", "The password of the key."),
    Field(
        "http.response.max.bytes",
        ConfigType.LONG,
        64 << 20,
        "A larger response is an error.",
        Range(1),
    ),
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NEEDED = {
    "basic": ("connection.user",),
    "bearer": ("bearer.token",),
    "oauth2": ("oauth2.token.url", "oauth2.client.id", "oauth2.client.secret"),
}
_EARLIER_SECONDS = 30  # a token is renewed this long before it expires


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes

    @property
    def start(self) -> str:
        """The beginning of a text, for an error message."""
        return " ".join(self.body[:300].decode("utf-8", "replace").split())


class Client:
    """`request` returns any response; RetriableError if there is none."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._settings = settings = parse(CLIENT, config)
        self._most: int = settings["http.response.max.bytes"]
        self._auth: str = settings["auth.type"].lower()
        self._token = ""
        self._token_ends = 0.0
        login = None
        if self._auth == "basic":
            login = httpx.BasicAuth(settings["connection.user"], settings["connection.password"])
        self._client = httpx.Client(
            auth=login,
            verify=client_context(
                settings["https.ssl.truststore.location"],
                settings["https.ssl.keystore.location"],
                settings["https.ssl.key.password"],
            ),
            timeout=httpx.Timeout(
                settings["http.request.timeout.ms"] / 1000,
                connect=settings["http.connect.timeout.ms"] / 1000,
            ),
            headers={"user-agent": "penstock"},
        )

    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        response = self._send(method, url, {**headers, **self._bearer()}, body)
        if response.status == 401 and self._auth == "oauth2":
            self._token_ends = 0.0
            response = self._send(method, url, {**headers, **self._bearer()}, body)
        return response

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        where = address(url)
        try:
            with self._client.stream(method, url, headers=dict(headers), content=body) as response:
                parts, size = [], 0
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > self._most:
                        raise ConnectError(
                            f"{where}: the response has more than {self._most} bytes: ask for less, or raise "
                            "http.response.max.bytes"
                        )
                return Response(response.status_code, b"".join(parts))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConnectError(f"{where}: {reason(error)}") from error
        except httpx.HTTPError as error:
            raise RetriableError(f"{where}: {reason(error)}") from error

    def _bearer(self) -> dict[str, str]:
        if self._auth == "bearer":
            return {"authorization": f"Bearer {self._settings['bearer.token']}"}
        if self._auth != "oauth2":
            return {}
        if time.monotonic() >= self._token_ends:
            self._renew()
        return {"authorization": f"Bearer {self._token}"}

    def _renew(self) -> None:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings["oauth2.client.scope"]:
            form["scope"] = settings["oauth2.client.scope"]
        url = settings["oauth2.token.url"]
        try:
            answer = self._client.post(
                url, data=form, auth=(settings["oauth2.client.id"], settings["oauth2.client.secret"])
            )
        except httpx.HTTPError as error:
            raise RetriableError(f"{address(url)}: {reason(error)}") from error
        if answer.status_code >= 500:
            raise RetriableError(f"{address(url)}: no token, status {answer.status_code}")
        try:
            found = answer.json()
            self._token = str(found["access_token"])
            seconds = float(found.get("expires_in", 300))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"{address(url)}: no token in the answer, status {answer.status_code}"
            raise ConnectError(problem) from error
        self._token_ends = time.monotonic() + max(1.0, seconds - _EARLIER_SECONDS)

    def close(self) -> None:
        self._client.close()


def address(url: str) -> str:
    """The part of a URL that may be shown: without login and parameters."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def headers_of(text: str, separator: str) -> dict[str, str]:
    """`Name:value|Name:value`; ValueError names a part that is not a header."""
    found = {}
    for each in filter(None, (part.strip() for part in text.split(separator))):
        name, colon, value = each.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()) or "\n" in value or "\r" in value:
            raise ValueError(f"{name!r} is not a header: write Name:value")
        found[name.strip()] = value.strip()
    return found


def client_problems(settings: Mapping[str, Any], url: str) -> dict[str, list[str]]:
    """The problems of the URL (`url` is the name of its setting), the login and the TLS files."""
    value: str = settings[url]
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        return {
            url: [f"Invalid value for configuration {url}: it must be http://host/path or https://host/path"]
        }
    for name in _NEEDED.get(settings["auth.type"].lower(), ()):
        if not settings[name]:
            return {name: [f"auth.type={settings['auth.type']} needs {name}"]}
    for name in ("https.ssl.truststore.location", "https.ssl.keystore.location"):
        if settings[name]:
            try:
                client_context(
                    settings[name] if "truststore" in name else "",
                    settings[name] if "keystore" in name else "",
                    settings["https.ssl.key.password"],
                )
            except ConnectError as error:
                return {name: [f"Invalid value {settings[name]} for configuration {name}: {error}"]}
    return {}


def pointed(value: Any, pointer: str) -> Any:
    """The value that a JSON pointer (RFC 6901) refers to; KeyError if it does not exist."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise KeyError(pointer)
    return value


def json_of(response: Response, url: str) -> Any:
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise ConnectError(f"{address(url)}: the response is not JSON: {response.start}") from error
