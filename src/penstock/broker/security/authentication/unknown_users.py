"""The salt and iterations that SCRAM returns for unknown users: they look like those of existing users.

Tools create different credentials: Java's kafka-configs uses a salt of about 26 letters and digits,
librdkafka one of 64 bytes, and iterations are chosen for each user. For an unknown user the form of an
existing one is returned. The choice depends on the name and the cluster's secret, so that all brokers always
return the same. Adding or deleting a user changes it only for few names: each form is used for a share of
names according to its share of users.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.credentials.scram import MIN_ITERATIONS, ScramCredential

Credentials = Callable[[], Mapping[tuple[str, str], ScramCredential]]
"""Those of all users now, by mechanism and user."""

_DIGITS = string.digits.encode()
_BASE36 = _DIGITS + string.ascii_lowercase.encode()
_WORDS = _BASE36 + string.ascii_uppercase.encode()
_ALPHABETS = (_DIGITS, _DIGITS + b"abcdef", _DIGITS + b"ABCDEF", _BASE36, _WORDS, _WORDS + b"+/=-_")
_ANY_BYTE = bytes(range(256))
# Java's salt is a random number of 130 bits in base 36: 25 digits, or 26 that begin with 1, seldom fewer.
_JAVA_BITS, _JAVA_LENGTHS = 130, range(20, 27)
# The most forms that are imitated: those of most users.
_MOST_FORMS = 32


class Form(NamedTuple):
    """The form of a credential that a client sees. For Java's salts the length is 0, because it varies."""

    alphabet: bytes
    length: int
    iterations: int


_DEFAULT = Form(_ANY_BYTE, 20, MIN_ITERATIONS)
"""As the brokers' own users and delegation tokens."""


class UnknownUsers:
    """`key` is the cluster's secret."""

    def __init__(self, key: bytes, credentials: Credentials) -> None:
        self._key = key
        self._credentials = credentials
        self._seen: Mapping[tuple[str, str], ScramCredential] | None = None
        self._forms: dict[str, list[tuple[Form, int]]] = {}

    def shown(self, mechanism: str, user: str) -> tuple[bytes, int]:
        secret = hmac.digest(self._key, f"{mechanism}\0{user}".encode(), "sha256")
        return _salted(secret, self._form(mechanism, secret))

    def shown_token(self, mechanism: str, token_id: str) -> tuple[bytes, int]:
        """Salt and iterations for an unknown delegation token: all tokens have the same form."""
        return _salted(hmac.digest(self._key, f"{mechanism}\0{token_id}\0token".encode(), "sha256"), _DEFAULT)

    def _form(self, mechanism: str, secret: bytes) -> Form:
        """Weighted rendezvous hashing: one more user changes the form of one in as many names."""
        best, found = math.inf, _DEFAULT
        for form, users in self._forms_of(mechanism):
            drawn = hmac.digest(secret, repr(tuple(form)).encode(), "sha256")
            fraction = (int.from_bytes(drawn[:6], "big") + 1) / (2**48 + 2)
            score = -math.log(fraction) / users
            if score < best:
                best, found = score, form
        return found

    def _forms_of(self, mechanism: str) -> list[tuple[Form, int]]:
        credentials = self._credentials()
        if credentials is not self._seen:
            self._seen = credentials
            counted: dict[str, Counter[Form]] = {}
            for (name, _), credential in credentials.items():
                counted.setdefault(name, Counter())[form_of(credential)] += 1
            self._forms = {
                name: sorted(forms.items(), key=lambda one: (-one[1], one[0]))[:_MOST_FORMS]
                for name, forms in counted.items()
            }
        return self._forms.get(mechanism, [])


def form_of(credential: ScramCredential) -> Form:
    salt, length = credential.salt, len(credential.salt)
    alphabet = next((one for one in _ALPHABETS if not salt.translate(None, one)), _ANY_BYTE)
    if alphabet == _BASE36 and length in _JAVA_LENGTHS and (length < 26 or salt[:1] == b"1"):
        length = 0
    return Form(alphabet, length, credential.iterations)


def _salted(secret: bytes, form: Form) -> tuple[bytes, int]:
    length = form.length
    stream = hashlib.shake_256(secret).digest(2 * length + 32)
    if form.alphabet == _ANY_BYTE:
        return stream[:length], form.iterations
    number = int.from_bytes(stream, "big")
    if not length:
        number %= 1 << _JAVA_BITS
    digits = bytearray()
    while number if not length else len(digits) < length:
        number, digit = divmod(number, len(form.alphabet))
        digits.append(form.alphabet[digit])
    return bytes(reversed(digits)), form.iterations
