"""SCRAM against the examples of RFC 5802's successors, and against messages of any kind."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.credentials.scram import (
    ClientScram,
    ScramCredential,
    ScramFailed,
    ServerScram,
    credential,
    salted_password,
)

# RFC 7677, 3: user "user", password "pencil", SCRAM-SHA-256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def made(mechanism: str, password: str, salt: bytes = SALT, iterations: int = 4096) -> ScramCredential:
    return credential(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def server(mechanism: str = "SCRAM-SHA-256", **users: ScramCredential) -> ServerScram:
    return ServerScram(mechanism, users.get, lambda user: (b"imagined", 4096), NONCE)


@pytest.mark.promise(
    "protocol", "Clients log in with PLAIN, SCRAM and OAUTHBEARER; without the right secret they cannot"
)
def test_the_server_says_what_the_rfcs_example_says() -> None:
    exchange = server(user=made("SCRAM-SHA-256", "pencil"))
    assert exchange.first(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.final(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.user == "user"


def test_the_client_says_what_the_rfcs_example_says() -> None:
    client = ClientScram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == CLIENT_FIRST
    assert client.proof(SERVER_FIRST) == CLIENT_FINAL
    client.check(SERVER_FINAL)
    with pytest.raises(ScramFailed, match="impostor"):
        client.check(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(
    user=st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name), password=st.text(max_size=20)
)
def test_client_and_server_agree_for_any_name_and_password(mechanism: str, user: str, password: str) -> None:
    try:
        user.encode(), password.encode()
    except UnicodeEncodeError:
        return
    exchange = ServerScram(
        mechanism, {user: made(mechanism, password, b"s" * 8)}.get, lambda _: (b"x", 4096), "server"
    )
    client = ClientScram(mechanism, user, password, "client")
    client.check(exchange.final(client.proof(exchange.first(client.first()))))
    assert exchange.user == user


@pytest.mark.promise("protocol", "A wrong user and a wrong password get the same error")
@pytest.mark.parametrize("users", [{}, {"user": made("SCRAM-SHA-256", "other", b"imagined")}])
def test_a_wrong_user_and_a_wrong_password_are_answered_alike(users: dict[str, ScramCredential]) -> None:
    exchange = server(**users)
    client = ClientScram("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    first = exchange.first(client.first())
    assert (
        first == f"r=rOprNGfwEbeRWgbNEkqO{NONCE},s={base64.b64encode(b'imagined').decode()},i=4096".encode()
    )
    with pytest.raises(ScramFailed, match=r"^wrong user or password$"):
        exchange.final(client.proof(first))


@pytest.mark.promise("protocol", "A wrong user and a wrong password get the same error")
def test_the_keys_of_an_unknown_user_let_nobody_in() -> None:
    """With the zeros that stand for them, a client that knows so can make a proof that would hold."""
    exchange = server()
    exchange.first(CLIENT_FIRST)
    import hashlib
    import hmac

    without_proof = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{NONCE}"
    salt = base64.b64encode(b"imagined").decode()
    signed = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO{NONCE},s={salt},i=4096,{without_proof}"
    signature = hmac.digest(bytes(32), signed.encode(), hashlib.sha256)
    with pytest.raises(ScramFailed, match="wrong user or password"):
        exchange.final(f"{without_proof},p={base64.b64encode(signature).decode()}".encode())


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n,,", b"n,,n=user", b"n,,r=abc", b"p=tls-unique,,n=user,r=abc", b"n,a=other,n=user,r=abc",
        b"n,,n=us=er,r=abc", b"n,,n=,r=abc", b"n,,m=x,n=user,r=abc", b"n,,n=user,n=root,r=abc", b"\xff",
    ],
)  # fmt: skip
def test_a_first_message_that_is_not_sound_is_refused(message: bytes) -> None:
    with pytest.raises(ScramFailed):
        server(user=made("SCRAM-SHA-256", "pencil")).first(message)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"), (b"r=rOpr", b"r=xOpr"), (b"p=dHz", b"p=eHz"), (b",p=", b",q="),
        (b"p=dHzb", b"p="), (b"c=biws", b"c=biws,c=biws"), (b"=", b"\xff"),
    ],
)  # fmt: skip
def test_a_final_message_that_is_not_sound_is_refused(old: bytes, new: bytes) -> None:
    exchange = server(user=made("SCRAM-SHA-256", "pencil"))
    exchange.first(CLIENT_FIRST)
    with pytest.raises(ScramFailed):
        exchange.final(CLIENT_FINAL.replace(old, new))


@given(first=st.binary(max_size=80), final=st.binary(max_size=80))
def test_any_bytes_are_answered_or_refused(first: bytes, final: bytes) -> None:
    exchange = server(user=made("SCRAM-SHA-256", "pencil", iterations=1))
    for begin in (first, b"n,," + first, CLIENT_FIRST):
        try:
            exchange.first(begin)
            exchange.final(final)
        except ScramFailed:
            pass
        else:
            raise AssertionError("random bytes were let in")
    client = ClientScram("SCRAM-SHA-256", "user", "pencil", "abc")
    for step in (client.proof, client.check):
        with pytest.raises(ScramFailed):
            step(first)
