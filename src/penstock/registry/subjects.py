"""Names of subjects, and their contexts.

`orders` is a subject of the default context, `:.eu:orders` one of the context `.eu`, `:.eu:` the context
itself. Each context has its own ids.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
"""Whose configuration and mode are those of all contexts that have none."""
ALL_CONTEXTS = ":*:"


class Qualified(NamedTuple):
    """A subject and its context; `subject` is empty for the context itself."""

    context: str
    subject: str


@lru_cache(maxsize=65536)
def split(name: str) -> Qualified:
    if name.startswith(":."):
        end = name.find(":", 2)
        return Qualified(name[1:], "") if end < 0 else Qualified(name[1:end], name[end + 1 :])
    if name.startswith(ALL_CONTEXTS):
        return Qualified("*", name[len(ALL_CONTEXTS) :])
    return Qualified(DEFAULT_CONTEXT, name)


def join(context: str, subject: str) -> str:
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def normalize(name: str) -> str:
    """The canonical form of a name: `:.:orders` becomes `orders`, `:.eu` becomes `:.eu:`."""
    return join(*split(name))


def context_of(name: str | None) -> str:
    return DEFAULT_CONTEXT if name is None else split(name).context


def context_prefix(name: str | None) -> str:
    """`:.eu:` for a subject of `.eu`, nothing for one of the default context."""
    context = context_of(name)
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def normalize_context(context: str) -> str:
    """`eu`, `.eu` and `:.eu:` as the prefix `:.eu:`; ValueError for an invalid context."""
    context = context.removeprefix(":").removesuffix(":")
    if ":" in context:
        raise ValueError(f"Context name '{context}' cannot contain a colon")
    if not context.startswith("."):
        context = "." + context
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def is_default_context(name: str | None) -> bool:
    return name is None or split(name) == (DEFAULT_CONTEXT, "")


def is_global_context(name: str | None) -> bool:
    return name is not None and split(name) == (GLOBAL_CONTEXT, "")


def is_valid(name: str, *, for_settings: bool = False) -> bool:
    """Whether schemas (or, `for_settings`, a configuration or mode) may be stored under this name."""
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in name):
        return False
    if any(0xD800 <= ord(character) < 0xE000 for character in name):
        return False  # a lone surrogate: it cannot be written as UTF-8
    qualified = split(name)
    if qualified.subject in ("__GLOBAL", "__EMPTY"):
        return False
    return for_settings or qualified.context != GLOBAL_CONTEXT


def qualify_with(parent: str, subject: str) -> str:
    """The subject that `subject` refers to in a schema of `parent`: in the same context unless it names
    another.
    """
    named = split(subject)
    if named.context != DEFAULT_CONTEXT:
        return join(*named)
    return join(context_of(parent), named.subject)


def covers(name: str | None, subject: str) -> bool:
    """Whether a setting or deletion of `name` affects `subject`: by its own name, its context, or all
    subjects.
    """
    if name is None or name == subject:
        return True
    context, rest = split(name)
    return not rest and (context == GLOBAL_CONTEXT or context == context_of(subject))


class SubjectPrefix:
    """`subjectPrefix` of a request: `:*:ord` in any context, `:.eu:ord` in one, `ord` in the default one."""

    def __init__(self, prefix: str) -> None:
        self._every_context = prefix.startswith(ALL_CONTEXTS)
        context, self._subject = split(prefix)
        self._context = context
        self._open_context = prefix.startswith(":.") and ":" not in prefix[2:]

    def matches(self, subject: str) -> bool:
        context, name = split(subject)
        if not self._every_context and context != self._context:
            if not (self._open_context and context.startswith(self._context)):
                return False
        return name.startswith(self._subject)
