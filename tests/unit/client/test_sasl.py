"""SASL without a socket: the examples of the RFCs, and servers that are not what they say."""

from __future__ import annotations

import pytest

from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.login import (
    ClientLogin,
    ClientLoginFailed,
    LoginRejected,
    MechanismNotSupported,
    Plain,
    Scram,
)

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(username: str = "user") -> Scram:
    return Scram("SCRAM-SHA-256", username, "pencil", NONCE)


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
def test_scram_says_what_the_rfcs_example_says() -> None:
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert not client.done
    client.respond(SERVER_FINAL)
    assert client.done


def test_a_name_with_commas_and_equal_signs_is_escaped() -> None:
    assert scram("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    client = scram()
    client.respond(SERVER_FIRST)
    with pytest.raises(ClientLoginFailed, match="impostor"):
        client.respond(b"v=" + b"A" * 43 + b"=")
    assert not client.done


@pytest.mark.parametrize(
    "challenge",
    [
        SERVER_FIRST.replace(b"r=rO", b"r=xO"),
        SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        SERVER_FIRST.replace(b"i=4096", b"i=0"),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999999"),
        SERVER_FIRST.replace(b"i=4096", b"i=many"),
        SERVER_FIRST.replace(b"W22", b"***"),
        b"",
        b"\xff\xfe",
        b"e=unknown-user",
    ],
)
def test_a_challenge_that_is_not_sound_ends_it(challenge: bytes) -> None:
    with pytest.raises(ClientLoginFailed):
        scram().respond(challenge)


def test_plain_is_one_message() -> None:
    plain = Plain("alice", "sécret")
    assert plain.first() == "\0alice\0sécret".encode()
    assert plain.done


def accepted(auth_bytes: bytes = b"", lifetime_ms: int = 0) -> Message:
    return Message(error_code=0, error_message=None, auth_bytes=auth_bytes, session_lifetime_ms=lifetime_ms)


def test_a_login_goes_on_until_the_server_has_proved_itself() -> None:
    login = ClientLogin(scram())
    api, request = login.first()
    assert (api, request.mechanism) == (ApiKey.SASL_HANDSHAKE, "SCRAM-SHA-256")
    step = login.next(Message(error_code=0, mechanisms=["SCRAM-SHA-256"]))
    assert step is not None
    assert step[1].auth_bytes == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    step = login.next(accepted(SERVER_FIRST))
    assert step is not None
    assert (step[0], step[1].auth_bytes) == (ApiKey.SASL_AUTHENTICATE, CLIENT_FINAL)
    assert login.next(accepted(SERVER_FINAL, 9000)) is None
    assert login.lifetime_ms == 9000


def test_a_login_that_the_broker_does_not_take_says_why() -> None:
    login = ClientLogin(Plain("alice", "wrong"))
    with pytest.raises(MechanismNotSupported) as unsupported:
        login.next(Message(error_code=33, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"]))
    assert unsupported.value.supported == "SCRAM-SHA-512, OAUTHBEARER"
    assert login.next(Message(error_code=0, mechanisms=["PLAIN"])) is not None
    with pytest.raises(LoginRejected) as rejected:
        login.next(Message(error_code=58, error_message="wrong user or password", auth_bytes=b""))
    assert rejected.value.reason == "wrong user or password"
    login = ClientLogin(Plain("alice", "wrong"))
    login.next(Message(error_code=0, mechanisms=["PLAIN"]))
    with pytest.raises(LoginRejected, match="SASL_AUTHENTICATION_FAILED"):
        login.next(Message(error_code=58, error_message=None, auth_bytes=b""))
