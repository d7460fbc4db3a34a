"""What SCRAM shows for names that are no users, beside what it shows for users that any tool has made."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from penstock.broker.security.authentication.mechanisms import Mechanisms
from penstock.broker.security.authentication.unknown_users import Form, UnknownUsers, form_of
from penstock.credentials.scram import ClientScram, ScramCredential

KEY = b"k" * 32
MECHANISM = "SCRAM-SHA-256"
Users = dict[tuple[str, str], ScramCredential]


def java_salt(rng: random.Random) -> bytes:
    """As `new BigInteger(130, random).toString(36)`."""
    number, text = rng.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text.encode()


def users(count: int = 60) -> Users:
    """A third each of Penstock's own, of kafka-configs' and of librdkafka's."""
    rng = random.Random(7)
    made: Users = {}
    for number in range(count):
        salt = (rng.randbytes(20), java_salt(rng), rng.randbytes(64))[number % 3]
        made[MECHANISM, f"user{number}"] = ScramCredential(salt, b"", b"", (4096, 8192)[number // 3 % 2])
    return made


def form_shown(unknown: UnknownUsers, name: str) -> Form:
    salt, iterations = unknown.shown(MECHANISM, name)
    return form_of(ScramCredential(salt, b"", b"", iterations))


@pytest.mark.promise(
    "protocol",
    "For an unknown user SCRAM returns a salt and an iteration count that look like those of existing users",
)
def test_an_unknown_user_is_shown_a_form_that_existing_users_have_and_as_often() -> None:
    existing = users()
    unknown = UnknownUsers(KEY, lambda: existing)
    shown = Counter(form_shown(unknown, f"nobody{number}") for number in range(3000))
    assert set(shown) == {form_of(one) for one in existing.values()} and len(shown) == 6
    assert all(400 < count < 600 for count in shown.values()), shown


def test_salts_of_kafkas_own_tool_are_imitated_in_length_and_first_digit() -> None:
    rng = random.Random(7)
    existing: Users = {(MECHANISM, "u"): ScramCredential(java_salt(rng), b"", b"", 4096)}
    unknown = UnknownUsers(KEY, lambda: existing)
    salts = [unknown.shown(MECHANISM, f"nobody{number}")[0] for number in range(3000)]
    real = [java_salt(rng) for _ in range(3000)]
    for length in (25, 26):
        found, expected = (sum(len(salt) == length for salt in some) for some in (salts, real))
        assert abs(found - expected) < 300
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}
    assert {len(salt) for salt in salts} <= {len(salt) for salt in real} | {23, 24}


def test_a_form_of_few_users_is_shown_to_few_names() -> None:
    existing: Users = {(MECHANISM, f"u{n}"): ScramCredential(b"\xff" * 20, b"", b"", 4096) for n in range(99)}
    existing[MECHANISM, "odd"] = ScramCredential(b"\xff" * 64, b"", b"", 16384)
    unknown = UnknownUsers(KEY, lambda: existing)
    odd = sum(form_shown(unknown, f"nobody{number}").iterations == 16384 for number in range(3000))
    assert 0 < odd < 90


def test_the_same_name_is_shown_the_same_everywhere_and_a_further_user_changes_that_for_few() -> None:
    before: Mapping[tuple[str, str], ScramCredential] = users()
    after = dict(reversed(list(before.items())))
    assert after == before
    here, there = UnknownUsers(KEY, lambda: before), UnknownUsers(KEY, lambda: after)
    names = [f"nobody{number}" for number in range(1000)]
    first = [here.shown(MECHANISM, name) for name in names]
    assert first == [there.shown(MECHANISM, name) for name in names]
    assert len({salt for salt, _ in first}) == len(names)
    after = {**after, (MECHANISM, "new"): ScramCredential(b"\xff" * 20, b"", b"", 4096)}
    changed = sum(old != there.shown(MECHANISM, name) for old, name in zip(first, names, strict=True))
    assert changed < 50
    assert here.shown("SCRAM-SHA-512", "nobody0") != first[0], "each mechanism has its own"
    assert UnknownUsers(b"x", lambda: before).shown(MECHANISM, "nobody0")[0] != first[0][0]


def test_without_users_an_unknown_one_is_shown_what_penstock_makes() -> None:
    salt, iterations = UnknownUsers(KEY, dict).shown(MECHANISM, "nobody")
    assert (len(salt), iterations) == (20, 4096)


def test_users_that_each_have_a_form_of_their_own_cost_a_bounded_number_of_steps() -> None:
    existing: Users = {
        (MECHANISM, f"u{number}"): ScramCredential(hashlib.sha512(b"%d" % number).digest(), b"", b"", number)
        for number in range(4096, 8000)
    }
    unknown = UnknownUsers(KEY, lambda: existing)
    unknown.shown(MECHANISM, "nobody")
    assert len(unknown._forms[MECHANISM]) <= 32


def test_a_login_of_an_unknown_user_is_answered_in_the_form_of_an_existing_one() -> None:
    existing: Users = {(MECHANISM, "alice"): ScramCredential(b"\xff" * 64, bytes(32), bytes(32), 8192)}

    async def no_token(mechanism: str, token_id: str) -> None:
        return None

    mechanisms = Mechanisms(
        (MECHANISM,), users=None, credentials=lambda: existing, salt_key=KEY, tokens=None,
        token_logins=no_token,
    )  # fmt: skip

    async def first(user: str, *, is_token: bool = False) -> tuple[int, int]:
        side = ClientScram(MECHANISM, user, "guess", "abc", is_token=is_token)
        answer = await mechanisms.begin(MECHANISM).respond(side.first())
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        return len(base64.b64decode(fields["s"])), int(fields["i"])

    assert asyncio.run(first("alice")) == asyncio.run(first("mallory")) == (64, 8192)
    assert asyncio.run(first("mallory", is_token=True)) == (20, 4096), "as all delegation tokens"
