"""Endpoints of token issuers: which may be used, and how. Tokens, secrets and keys are sent over TLS only."""

from __future__ import annotations

import ipaddress
import ssl
import urllib.request
from typing import Any
from urllib.parse import urlsplit


def is_safe(url: str) -> bool:
    """HTTPS, or plain HTTP on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))


def opener(ca: str | None = None) -> urllib.request.OpenerDirector:
    """An opener that follows no redirects, so that only the configured URL is used. `ca` is PEM text; None
    trusts the system's authorities.
    """
    context = ssl.create_default_context(cadata=ca)
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
