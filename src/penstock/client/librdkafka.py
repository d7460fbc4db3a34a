"""Settings for confluent-kafka's clients, with a login that librdkafka does not have built in.

librdkafka gets its OAUTHBEARER tokens from `penstock.client.oauth`, by a callback. All other settings pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.client.oauth import (
    OAUTHBEARER,
    TOKEN_MECHANISMS,
    TokenSource,
    current,
    token_source,
)
from penstock.client.security import jaas_options

_MECHANISM = ("sasl.mechanisms", "sasl.mechanism")
_OURS = ("sasl.oauthbearer.", "https.ca.")


def with_login(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings; those of OAUTHBEARER and AWS_MSK_IAM as a callback that has the token.

    BadClientSetting where they do not say where tokens come from.
    """
    mechanism = next((str(settings[name]).upper() for name in _MECHANISM if name in settings), "")
    if mechanism not in TOKEN_MECHANISMS or "oauth_cb" in settings:
        return dict(settings)
    jaas = jaas_options(settings["sasl.jaas.config"]) if settings.get("sasl.jaas.config") else {}
    source = token_source(settings, mechanism, jaas)
    kept = {
        name: value
        for name, value in settings.items()
        if not name.startswith(_OURS) and name not in ("sasl.jaas.config", *_MECHANISM)
    }
    # AWS's brokers take the signed request as a bearer token.
    return {**kept, "sasl.mechanisms": OAUTHBEARER, "oauth_cb": _callback(source)}


def _callback(source: TokenSource) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    def callback(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = current(source)
        return token.value, token.expires, "", dict(source.extensions)

    return callback
