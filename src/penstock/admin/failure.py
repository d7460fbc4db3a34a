"""Errors of operations on a cluster: one line that names the object and says what to do.

The errors are click's, so that a command that does not handle one prints its line and exits with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from penstock.client.librdkafka import own_words as reason
from penstock.errors import MissingExtra

__all__ = ["FAILED", "CommandFailed", "UnknownTopic", "Unreachable", "did_you_mean", "needs_extra", "reason"]

FAILED = 1


class CommandFailed(click.ClickException):
    """The operation failed; `message` is the whole explanation."""

    exit_code = FAILED

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class Unreachable(CommandFailed):
    """No broker answered at the bootstrap address."""


class UnknownTopic(CommandFailed):
    """The cluster has no topic of this name."""

    def __init__(self, topic: str, known: Iterable[str]) -> None:
        hint = did_you_mean(topic, known) or f" Create it with `penstock topics create {topic}`."
        super().__init__(f"no topic '{topic}' in this cluster.{hint}")
        self.topic = topic


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """For a block that imports optional modules: if one is missing, the error names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise CommandFailed(str(MissingExtra(what, error.name, extra))) from error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the most similar known word, or nothing."""
    by_fold = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_fold, n=1, cutoff=0.6)
    return f" Did you mean '{by_fold[near[0]]}'?" if near else ""
