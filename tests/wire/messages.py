"""Random messages made from a schema, for the tests of this folder."""

from __future__ import annotations

import random
import uuid
from typing import Any

from penstock.wire.codec import Message
from penstock.wire.schema import LETTER_SIZE, Field, Struct

_BITS = {"b": 7, "h": 15, "i": 31, "q": 63, "H": 16, "I": 32}
_TEXTS = ["", "t", "topic-1", "größe", "名前", "x" * 126, "y" * 127, "z" * 300]
# What kio can hold: it knows error codes by name, and times become datetime and timedelta objects.
_ERROR_CODES = [-1, 0, 1, 3, 6, 35, 74, 87]


def random_message(schema: Struct, rng: random.Random) -> Message:
    return Message(**{field.name: _field(field, rng) for field in schema.fields})


def _field(field: Field, rng: random.Random) -> Any:
    if field.tag is not None and rng.random() < 0.5:
        return _plain_default(field)
    if not field.is_array:
        return _item(field, rng, field.nullable)
    if field.nullable and rng.random() < 0.2:
        return None
    most = 140 if field.type in LETTER_SIZE and rng.random() < 0.05 else 3
    return [_item(field, rng, False) for _ in range(rng.randint(0, most))]


def _plain_default(field: Field) -> Any:
    if field.default is None:
        return None
    if field.is_array:
        return []
    if field.struct is not None:
        return Message(**{item.name: _plain_default(item) for item in field.struct.fields})
    return field.default


def _item(field: Field, rng: random.Random, nullable: bool) -> Any:
    if nullable and rng.random() < 0.3:
        return None
    if field.struct is not None:
        return random_message(field.struct, rng)
    if field.type == "string":
        return rng.choice(_TEXTS)
    if field.type == "bytes":
        return rng.randbytes(rng.choice([0, 1, 20, 126, 127, 300]))
    if field.type == "uuid":
        return uuid.UUID(int=rng.choice([0, rng.getrandbits(128)]))
    if field.type == "?":
        return rng.random() < 0.5
    if field.type == "d":
        return rng.choice([0.0, -1.5, 1e300, rng.random()])
    if field.name.endswith("error_code"):
        return rng.choice(_ERROR_CODES)
    if field.name.endswith("_ms"):
        return rng.randint(0, 2_000_000_000)
    top = (1 << _BITS[field.type]) - 1
    low = 0 if field.type in "HI" else -top - 1
    return rng.choice([low, 0, 1, top, rng.randint(low, top)])
