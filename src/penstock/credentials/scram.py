"""SCRAM (RFC 5802, RFC 7677) without sockets: credentials, the server's side, and the client's.

The server stores no password, only values derived from it. For an unknown user it does the same work as for a
wrong password, and fails at the same message. There is no channel binding, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.errors import PenstockError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Kafka's limits for a credential."""
# A server that asks a client for more iterations is malicious.
_MOST_OF_A_SERVER = 10_000_000


class ScramFailed(PenstockError):
    """The exchange has failed: a malformed message or a wrong proof."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores of a password: enough to check a login, not enough to log in."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2. Takes milliseconds, so run it in a thread."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    name = HASHES[mechanism]
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored, hmac.digest(salted, b"Server Key", name), iterations)


class ServerScram:
    """One exchange: `first` and then `final`. `find(user)` returns None for an unknown user."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        unknown: Callable[[str], tuple[bytes, int]],
        nonce: str,
    ) -> None:
        """`unknown(user)` returns the salt and the iterations for an unknown user. They are always the same
        for that user, so that asking twice reveals nothing. `nonce` must be unique.
        """
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._unknown = unknown
        self._nonce = nonce
        self._signed = ""
        self._binding = ""
        self._known = False
        self.user = ""

    @staticmethod
    def token_of(message: bytes) -> str | None:
        """The id of a delegation token, if the client's first message is a login with one (KIP-48)."""
        fields = _fields(_client_first(_text(message))[1])
        if fields.get("tokenauth", "").lower() != "true":
            return None
        return _unescaped(fields.get("n", ""))

    def first(self, message: bytes) -> bytes:
        header, bare = _client_first(_text(message))
        fields = _fields(bare)
        name, client_nonce = fields.get("n"), fields.get("r")
        if not name or not client_nonce or "m" in fields:
            raise ScramFailed("the client's first message has no user or no nonce")
        self.user = _unescaped(name)
        authzid = header.split(",")[1]
        if authzid and _unescaped(authzid.removeprefix("a=")) != self.user:
            raise ScramFailed("acting for another user is not supported")
        found = self._find(self.user)
        self._known = found is not None
        if found is None:
            salt, iterations = self._unknown(self.user)
            size = hashlib.new(self._hash).digest_size
            found = ScramCredential(salt, bytes(size), bytes(size), iterations)
        self._credential = found
        self._nonce = client_nonce + self._nonce
        self._binding = base64.b64encode(header.encode()).decode()
        salt_text = base64.b64encode(found.salt).decode()
        answer = f"r={self._nonce},s={salt_text},i={found.iterations}"
        self._signed = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The server's signature. After this the client is authenticated as `user`."""
        text = _text(message)
        without_proof, separator, proof_text = text.rpartition(",p=")
        fields = _fields(without_proof)
        if not separator or fields.get("c") != self._binding or fields.get("r") != self._nonce:
            raise ScramFailed("the client's final message does not continue its first")
        proof = _decoded(proof_text)
        signed = f"{self._signed},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise ScramFailed("the client's proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        shown = hashlib.new(self._hash, client_key).digest()
        right = hmac.compare_digest(shown, self._credential.stored_key)
        if not (right and self._known):
            raise ScramFailed("wrong user or password")
        verifier = hmac.digest(self._credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(verifier)


class ClientScram:
    """The client's side: `first`, then `proof` with the server's first message, then `check` with its
    last.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        """`is_token`: the user is the id of a delegation token, and the password its HMAC in base64."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._verifier = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def proof(self, message: bytes) -> bytes:
        """Takes milliseconds, so run it in a thread."""
        text = _text(message)
        fields = _fields(text)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramFailed("the server's nonce does not continue ours")
        if not iterations.isdecimal() or not 0 < int(iterations) <= _MOST_OF_A_SERVER:
            raise ScramFailed(f"the server asks for {iterations!r} iterations")
        salted = salted_password(
            self._mechanism, self._password, _decoded(fields.get("s", "")), int(iterations)
        )
        final = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def check(self, message: bytes) -> None:
        """Raises ScramFailed unless the server knows the password, too."""
        shown = _decoded(_fields(_text(message)).get("v", ""))
        if not self._verifier or not hmac.compare_digest(shown, self._verifier):
            raise ScramFailed("the server does not know the password: it may be an impostor")


def _client_first(text: str) -> tuple[str, str]:
    """The GS2 header with its commas, and the rest."""
    parts = text.split(",", 2)
    if len(parts) < 3 or parts[0] not in ("n", "y") or (parts[1] and not parts[1].startswith("a=")):
        raise ScramFailed("the client's first message has no header, or asks for channel binding")
    return f"{parts[0]},{parts[1]},", parts[2]


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFailed("a message that is not text") from None


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or name in fields:
            raise ScramFailed("a message that cannot be read")
        fields[name] = value
    return fields


def _unescaped(name: str) -> str:
    plain = name.replace("=2C", ",").replace("=3D", "=")
    if plain.replace("=", "=3D").replace(",", "=2C") != name or not plain:
        raise ScramFailed("the user name is not escaped as SCRAM requires")
    return plain


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailed("a message that cannot be read") from None
