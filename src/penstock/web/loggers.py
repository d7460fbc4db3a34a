"""Levels of loggers while a process runs, under Kafka's names: what `/admin/loggers` and the broker logger
resources of DescribeConfigs and IncrementalAlterConfigs show and change."""

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
ROOT = "root"


class UnknownLogger(PenstockError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Logger {name} not found.")


class UnknownLevel(PenstockError):
    def __init__(self, level: str) -> None:
        super().__init__(f"Invalid log level '{level}'.")


class Level(TypedDict):
    level: str
    last_modified: int | None


class Loggers:
    """Of this process. `last_modified` is when a level was last changed here."""

    def __init__(self) -> None:
        self._modified: dict[str, int] = {}

    def all(self) -> dict[str, Level]:
        """Those that have a level of their own, and `root`."""
        names = [name for name in logging.root.manager.loggerDict if logging.getLogger(name).level]
        return {name: self._level(name) for name in [ROOT, *sorted(names)]}

    def levels(self) -> dict[str, str]:
        """The level in force of every logger."""
        return {name: self._level(name)["level"] for name in [ROOT, *sorted(logging.root.manager.loggerDict)]}

    def one(self, name: str) -> Level:
        """UnknownLogger"""
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise UnknownLogger(name)
        return self._level(name)

    def set(self, name: str, level: str) -> list[str]:
        """The loggers whose level this changes: it, and those below it. UnknownLogger, UnknownLevel

        A name that no code logs under gets no logger: it would stay, and each request could make another.
        """
        self.one(name)
        wanted = _LEVELS.get(level.upper())
        if wanted is None:
            raise UnknownLevel(level)
        logging.getLogger(None if name == ROOT else name).setLevel(wanted)
        below = [each for each in logging.root.manager.loggerDict if each.startswith(f"{name}.")]
        self._modified |= dict.fromkeys([name, *below], int(time.time() * 1000))
        return sorted([name, *below])

    def unset(self, name: str) -> None:
        """The logger has no level of its own any more, but that of the one above it. UnknownLogger"""
        self.one(name)
        logging.getLogger(name).setLevel(logging.NOTSET)
        self._modified[name] = int(time.time() * 1000)

    def _level(self, name: str) -> Level:
        logger = logging.getLogger(None if name == ROOT else name)
        level = logging.getLevelName(logger.getEffectiveLevel())
        return {"level": _SHOWN.get(level, level), "last_modified": self._modified.get(name)}
