"""Settings for confluent-kafka's clients, including logins that librdkafka does not have built in.

librdkafka gets its OAUTHBEARER tokens from `penstock.client.oauth` through a callback. All other settings are
passed on.

librdkafka retries after a failed login or TLS handshake, and ends with a timeout that does not mention it:
`first_metadata` stops at the first failure and reports it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.errors import AuthenticationFailed, TlsFailed
from penstock.client.oauth import (
    OAUTHBEARER,
    TOKEN_MECHANISMS,
    TokenSource,
    current,
    token_source,
)
from penstock.client.security import jaas_options

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer
    from confluent_kafka.admin import AdminClient

PROMPT_FETCH = {"fetch.queue.backoff.ms": 20}
"""For every consumer that reads many records: librdkafka stops fetching while its queue is full, and checks
again only after a second by default. A fast reader empties the queue in less.
"""

_MECHANISM = ("sasl.mechanisms", "sasl.mechanism")
_OURS = ("sasl.oauthbearer.", "https.ca.")
_LOGIN_SECONDS = 2.0
_NOISE = re.compile(r"^\S+/(?:bootstrap|\d+): | \(after \d+ms in state .*\)$|ipv[46]#")


def own_words(error: KafkaError) -> str:
    """The message of the broker or of librdkafka, without librdkafka's prefixes and states."""
    text = _NOISE.sub("", error.str() or error.name())
    for prefix in ("Local: ", "Broker: "):
        text = text.removeprefix(prefix)
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[:2].istitle() else text


def refusal(error: KafkaError | None, where: str) -> AuthenticationFailed | TlsFailed | None:
    """A failed login or TLS handshake, with what to check; None for every other error."""
    # A connection that a stopping broker closes during a login has this reason.
    if error is None or "Broker transport failure" in error.str():
        return None
    if error.code() == error._AUTHENTICATION:
        text = own_words(error).removeprefix("SASL authentication error: ")
        return AuthenticationFailed(
            f"login failed at {where}: {text}. Check the user, the password and sasl.mechanism"
        )
    if error.code() == error._SSL:
        text = own_words(error).removeprefix("SSL handshake failed: ")
        return TlsFailed(
            f"the TLS handshake failed at {where}: {text}. Check security.protocol, ssl.ca.location and the "
            "client's certificate"
        )
    return None


def refused_for_good(error: KafkaError | None, where: str) -> AuthenticationFailed | None:
    """Whether the login was rejected, so that a retry cannot help. A failed handshake may succeed later: a
    stopping broker ends it, too.
    """
    found = refusal(error, where)
    return found if isinstance(found, AuthenticationFailed) else None


def first_metadata(
    client: AdminClient | Producer,
    timeout: float,
    last_error: Callable[[], KafkaError | None],
    where: str,
    topic: str | None = None,
) -> Any:
    """`list_topics`. Raises AuthenticationFailed as soon as librdkafka reports it, and TlsFailed or
    KafkaException after the timeout.

    `last_error` returns the last argument of the client's error_cb.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + timeout
    patience = min(timeout, _LOGIN_SECONDS)
    while True:
        try:
            return client.list_topics(topic, patience)  # None means every topic
        except KafkaException as error:
            client.poll(0)  # error_cb is only called from poll
            patience = deadline - time.monotonic()
            check = refused_for_good if patience > 0 else refusal
            refused = check(last_error(), where)
            if refused is not None:
                raise refused from error
            if patience <= 0:
                raise


def with_login(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with OAUTHBEARER and AWS_MSK_IAM replaced by a callback that gets tokens.

    Raises BadClientSetting if the settings do not say where tokens come from.
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
    # AWS's brokers accept the signed request as a bearer token.
    return {**kept, "sasl.mechanisms": OAUTHBEARER, "oauth_cb": _callback(source)}


def _callback(source: TokenSource) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    def callback(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = current(source)
        return token.value, token.expires, "", dict(source.extensions)

    return callback
