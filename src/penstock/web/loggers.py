"""Levels of loggers while a process runs, under Kafka's names: what `/admin/loggers` shows and changes."""

from __future__ import annotations

import logging
import time
from typing import TypedDict

from penstock.errors import PenstockError

_LEVELS = {
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
    "OFF": "CRITICAL",
}
_SHOWN = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class UnknownLogger(PenstockError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Logger {name} not found.")


class UnknownLevel(PenstockError):
    def __init__(self, level: str) -> None:
        super().__init__(f"Invalid log level '{level}'.")


class Level(TypedDict):
    level: str
    last_modified: int | None


def checked_level(level: str) -> str:
    """As Kafka writes it. UnknownLevel"""
    if level.upper() not in _LEVELS:
        raise UnknownLevel(level)
    return level.upper()


class Loggers:
    """Of this process. `last_modified` is when a level was last changed here."""

    def __init__(self) -> None:
        self._modified: dict[str, int] = {}
        self._set: dict[str, str] = {}

    def levels(self) -> dict[str, str]:
        """That of `root` and all that were set here, in Python's names: for another process."""
        return {"root": logging.getLevelName(logging.getLogger().level), **self._set}

    def all(self) -> dict[str, Level]:
        """Those that have a level of their own, and `root`."""
        names = [name for name in logging.root.manager.loggerDict if logging.getLogger(name).level]
        return {name: self._level(name) for name in ["root", *sorted(names)]}

    def one(self, name: str) -> Level:
        """UnknownLogger"""
        if name != "root" and name not in logging.root.manager.loggerDict:
            raise UnknownLogger(name)
        return self._level(name)

    def set(self, name: str, level: str) -> list[str]:
        """The loggers whose level this changes: it, and those below it. UnknownLevel"""
        wanted = self._set[name] = _LEVELS[checked_level(level)]
        logging.getLogger(None if name == "root" else name).setLevel(wanted)
        below = [each for each in logging.root.manager.loggerDict if each.startswith(f"{name}.")]
        self._modified |= dict.fromkeys([name, *below], int(time.time() * 1000))
        return sorted([name, *below])

    def _level(self, name: str) -> Level:
        logger = logging.getLogger(None if name == "root" else name)
        level = logging.getLevelName(logger.getEffectiveLevel())
        return {"level": _SHOWN.get(level, level), "last_modified": self._modified.get(name)}
