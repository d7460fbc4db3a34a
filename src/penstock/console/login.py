"""The login form and the endpoints without a login: /health, /ready. No script, and no request data is
echoed.
"""

from __future__ import annotations

import html
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.admin.failure import CommandFailed
from penstock.console.site import Site
from penstock.console.threads import SharedAnswer
from penstock.web.body import BodyCutOff, BodyTooLarge, read_body
from penstock.web.guard import Refusal
from penstock.web.operator import Operator

PUBLIC = frozenset(("/login", "/health", "/ready"))
_MOST_BYTES = 8192
_READY_SECONDS = 1.0
"""/ready needs no login, so the cluster is asked at most once in this time."""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Log in - Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0 }}
form {{ display: grid; gap: .8rem; width: min(20rem, 90vw) }} h1 {{ font-size: 1.4rem; margin: 0 }}
input, button {{ font: inherit; padding: .6rem; border-radius: .4rem; border: 1px solid #8888 }}
button {{ background: #0f766e; color: white; border: 0; cursor: pointer }} .error {{ color: #dc2626 }}
</style></head><body><form method="post" action="/login"><h1>Penstock console</h1><div>{name}</div>
{error}<label for="user">User</label><input id="user" name="user" autocomplete="username" autofocus required>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button>Log in</button></form></body></html>"""

Endpoint = Callable[[Request], Awaitable[Response]]


def endpoints(site: Site) -> dict[str, Endpoint]:
    """Endpoints by path; each is served for GET, /login and /logout also for POST."""

    def page(error: str = "", status: int = 200) -> HTMLResponse:
        shown = f'<div class="error" role="alert">{html.escape(error)}</div>' if error else ""
        return HTMLResponse(_PAGE.format(name=html.escape(site.name), error=shown), status)

    async def login(request: Request) -> Response:
        sessions = site.sessions
        if sessions is None:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return page()
        try:
            body = await read_body(dict(request.scope["headers"]), request.receive, _MOST_BYTES)
            fields = parse_qs(body.decode(), max_num_fields=10)
        except (BodyTooLarge, BodyCutOff, UnicodeDecodeError, ValueError):
            return page("The form could not be read. Try again.", 400)
        name, password = fields.get("user", [""])[0], fields.get("password", [""])[0]
        token = await sessions.log_in(name, password, request.client.host if request.client else "")
        if isinstance(token, Refusal):
            wrong = "Wrong user or password." if token.status == 401 else token.message
            return page(wrong, token.status)
        answer = RedirectResponse("/", 303)
        secure = site.settings.tls_certificate is not None
        answer.set_cookie(sessions.cookie, token, httponly=True, samesite="strict", secure=secure)
        return answer

    async def logout(request: Request) -> Response:
        if site.sessions is None or request.method != "POST":
            return RedirectResponse("/", 303)
        site.sessions.log_out(request.scope["headers"])
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(site.sessions.cookie)
        return answer

    return {"/login": login, "/logout": logout}


def operator(site: Site) -> Operator:
    def ready() -> bool:
        """Whether the cluster responds."""
        try:
            site.cluster.broker_ids()
        except CommandFailed:
            return False
        return True

    return Operator(SharedAnswer(ready, _READY_SECONDS, time.monotonic).get)
