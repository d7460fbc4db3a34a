"""The Host, Origin and Content-Type checks of every HTTP server.

A browser sends requests for any page that it shows, so a port on loopback can be reached by every web page
that a user of the machine visits. A page of another site must not be able to post here (Origin,
Sec-Fetch-Site, and a content type that makes the browser send a preflight), nor to read from here through its
own host name that it resolves to this machine (DNS rebinding: Host).

Pure: takes the method and headers of a request, returns a refusal or None. Authentication is elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError

Headers = Sequence[tuple[bytes, bytes]]
"""Header names in lower case, as in ASGI."""

JSON = ("application/json",)
SECURE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    # Pages here have a style and no script. No HSTS: it would apply to all ports of the host.
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
]
"""The headers of every response."""
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_REMEMBERED = 1000
_CORS_METHODS = b"GET, HEAD, POST, PUT, DELETE"


class BadAllowance(PenstockError):
    """A host or origin to allow is malformed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is rejected, as an HTTP status and a sentence for the client."""

    status: int
    reason: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """The checks of one server.

    hosts     the names it goes by beside loopback's: `registry.example.com`, `*.example.com`, or `*` for any
    bound     the address it listens on; one that is not loopback's can be asked for by any IP address, which
              no DNS rebinds
    origins   pages of other origins that may use it: `https://console.example.com`, or `*` for any
    types     what a body may be; none: no request has one
    untyped   whether a body may come without a type, from clients that are not browsers
    adjustable   whether whoever starts the server has options for the first and third
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        bound: str = "127.0.0.1",
        origins: Iterable[str] = (),
        types: Iterable[str] = JSON,
        untyped: bool = False,
        adjustable: bool = True,
    ) -> None:
        names = [_allowed_host(each) for each in hosts if each]
        self._any_host = "*" in names
        self._names = frozenset(each for each in names if not each.startswith("*"))
        self._suffixes = tuple(each[1:] for each in names if each.startswith("*."))
        self._addresses = not _is_loopback(bound)
        allowed = [_allowed_origin(each) for each in origins]
        self._any_origin = "*" in allowed
        self._origins = frozenset(allowed)
        self._types = tuple(types)
        self._untyped = untyped
        self._adjustable = adjustable
        self._good_hosts: set[bytes] = set()

    def refusal(self, method: str, headers: Headers) -> Refusal | None:
        """None if the request is allowed."""
        host = origin = site = kind = None
        has_body = False
        for name, value in headers:
            if name == b"host":
                if host is not None:
                    return _bad("The request has more than one Host header")
                host = value
            elif name == b"origin":
                if origin is not None:
                    return _bad("The request has more than one Origin header")
                origin = value
            elif name == b"content-type":
                if kind is not None:
                    return _bad("The request has more than one Content-Type header")
                kind = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"content-length":
                has_body = has_body or value.strip() != b"0"
            elif name == b"transfer-encoding":
                has_body = True
        # Only HTTP/1.0 has no Host, as in the health checks of some proxies; a browser always sends it.
        if host is not None and host not in self._good_hosts:
            refused = self._check_host(host)
            if refused is not None:
                return refused
        if origin is not None or site is not None:
            refused = self._check_origin(method, host, origin, site)
            if refused is not None:
                return refused
        if has_body:
            return self._check_type(kind, from_browser=origin is not None or site is not None)
        return None

    def cors(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers that let a page of an allowed origin read the response; none for other origins."""
        origin = next((value for name, value in headers if name == b"origin"), None)
        if origin is None or not self._allows(origin):
            return []
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]

    def preflight(self, method: str, headers: Headers) -> list[tuple[bytes, bytes]] | None:
        """The response headers of a CORS preflight request; None if this is not one."""
        if method != "OPTIONS":
            return None
        given = dict(headers)
        if b"access-control-request-method" not in given:
            return None
        allowed = self.cors(headers)
        if not allowed:
            return None
        wanted = given.get(b"access-control-request-headers", b"")
        return [
            *allowed,
            (b"access-control-allow-methods", _CORS_METHODS),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", b"600"),
        ]

    def _check_host(self, host: bytes) -> Refusal | None:
        name = _host_name(host.decode("latin-1"))
        if name is None:
            return _bad("The Host header is not a host and a port")
        if not self._knows(name):
            hint = f"start it with --allow-host {name}, or use its address"
            return Refusal(
                403,
                "Forbidden",
                f"This server does not accept the host name '{name}': "
                f"{hint if self._adjustable else 'use its address'}",
            )
        if len(self._good_hosts) < _REMEMBERED:
            self._good_hosts.add(host)
        return None

    def _knows(self, name: str) -> bool:
        if self._any_host or name == "localhost" or name in self._names or name.endswith(self._suffixes):
            return True
        address = _address(name)
        return address is not None and (address.is_loopback or self._addresses)

    def _check_origin(
        self, method: str, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> Refusal | None:
        if origin is None:
            # A followed link or an embedded image: it changes nothing.
            if method in _SAFE or site in (b"same-origin", b"none"):
                return None
            return Refusal(403, "Forbidden", "A page of another site may not use this server")
        if self._allows(origin):
            return None
        text = origin.decode("latin-1")
        found = re.fullmatch(r"https?://([\w.:\[\]-]+)", text.lower())
        if found and host is not None and found[1] == host.decode("latin-1").strip().lower():
            return None
        name = text if found else "this origin"
        hint = ": start it with --allow-origin ORIGIN if it should" if self._adjustable else ""
        return Refusal(403, "Forbidden", f"A page of {name} may not use this server{hint}")

    def _allows(self, origin: bytes) -> bool:
        return self._any_origin or origin.decode("latin-1").lower() in self._origins

    def _check_type(self, kind: bytes | None, *, from_browser: bool) -> Refusal | None:
        if not self._types:
            return Refusal(415, "Unsupported Media Type", "A request to this server has no body")
        if kind is None:
            if self._untyped and not from_browser:
                return None
            given = "a body without a Content-Type"
        else:
            name = kind.decode("latin-1").partition(";")[0].strip().lower()
            if name in self._types:
                return None
            given = f"'{name}'" if re.fullmatch(r"[\w.+/-]+", name) else "this Content-Type"
        return Refusal(
            415,
            "Unsupported Media Type",
            f"HTTP 415 Unsupported Media Type: {given} is not allowed; send 'Content-Type: {self._types[0]}'",
        )


def _bad(message: str) -> Refusal:
    return Refusal(400, "Bad Request", message)


def _host_name(host: str) -> str | None:
    """`registry` of `registry:8081`, `::1` of `[::1]:8081`; None if malformed."""
    host = host.strip().lower()
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+?)\.?)(?::\d{0,5})?", host)
    return None if found is None else found[1] or found[2]


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" or (address is not None and address.is_loopback)


def _allowed_host(text: str) -> str:
    name = text.strip().lower()
    if name == "*":
        return name
    address = _address(name.strip("[]"))
    if address is not None:
        return str(address)
    if not re.fullmatch(r"(\*\.)?[^\s:/@*\[\]]+", name):
        raise BadAllowance(f"--allow-host {text}: write a name without a port, *.NAME, or * for any")
    return name.rstrip(".")


def _allowed_origin(text: str) -> str:
    origin = text.strip().lower().rstrip("/")
    if origin != "*" and not re.fullmatch(r"https?://[^\s/@*]+", origin):
        raise BadAllowance(f"--allow-origin {text}: write it as http://host:port, or * for any")
    return origin
