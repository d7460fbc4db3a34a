"""Keeps secrets out of what a process of a connector or task tells others: errors, traces and the log.

`remember` is called with each setting whose secret the process gets to know. An exception of a driver or of a
validator may quote it.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"
NAMES = re.compile(
    r"passw|passphrase|secret|token|credential|user\.?info|jaas|private\.?key|access\.?key|api\.?key|ssl\.key\b",
    re.IGNORECASE,
)
"""Names of settings that are secret if the plugin does not declare them."""
LEAST = 4
"""The minimum length of a secret that is searched for in other values: shorter ones could occur by chance."""
_MOST = 1000

_lock = threading.Lock()
_shown: dict[str, str] = {}  # by secret, the oldest first
_pattern: re.Pattern[str] | None = None


def remember(secret: str, shown: str = HIDDEN) -> None:
    """From now on the secret is replaced by `shown` in the texts of this process."""
    global _pattern
    forms = {secret, repr(secret)[1:-1], *other_forms(secret)}
    forms = {form for form in forms if len(form) >= LEAST}
    with _lock:
        if forms <= _shown.keys():
            return
        _shown.update(dict.fromkeys(forms, shown))
        while len(_shown) > _MOST:
            del _shown[next(iter(_shown))]
        longest_first = sorted(_shown, key=len, reverse=True)
        _pattern = re.compile("|".join(map(re.escape, longest_first)))


def conceal(text: str) -> str:
    pattern = _pattern
    return text if pattern is None else pattern.sub(lambda match: _shown.get(match[0], HIDDEN), text)


def conceal_log() -> None:
    """Conceal secrets in all that this process logs."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Concealing(handler.formatter or logging.Formatter()))


class _Concealing(logging.Formatter):
    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return conceal(self._inner.format(record))


def other_forms(secret: str) -> set[str]:
    """The secret as it is written in URLs, in JSON and in headers."""
    encoded = base64.b64encode(secret.encode()).decode()
    forms = {quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], encoded}
    forms.add(secret.strip())
    return {form for form in forms if form != secret and len(form) >= LEAST}
