"""Levels of loggers while a process runs, under Kafka's names: what `/admin/loggers` and the broker logger
resources of DescribeConfigs and IncrementalAlterConfigs show and change."""

from __future__ import annotations

import json
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
        super().__init__(f"invalid log level '{level}'.")


class Level(TypedDict):
    level: str
    last_modified: int | None


def checked_level(level: str) -> str:
    """The level in Kafka's spelling. Raises UnknownLevel."""
    if level.upper() not in _LEVELS:
        raise UnknownLevel(level)
    return level.upper()


def level_in(body: bytes) -> str:
    """The level in the body of a request; ValueError if the body is not {"level": …}."""
    try:
        found = json.loads(body or b"null")
    except RecursionError:
        raise ValueError("the body has too many brackets inside each other") from None
    level = found.get("level") if isinstance(found, dict) else None
    if not isinstance(level, str):
        raise ValueError('the body must be {"level": "DEBUG"}, or another level')
    return level


class Loggers:
    """The loggers of this process. `last_modified` is when a level was last changed here.

    A logger exists for as long as the process runs. So a name that no code logs under gets a logger only
    while fewer than `most_made` names were set here: other processes may have code that logs under it.
    """

    def __init__(self, most_made: int = 0) -> None:
        self._most_made = most_made
        self._modified: dict[str, int] = {}
        self._set: dict[str, str] = {}

    def for_others(self) -> dict[str, str]:
        """The levels of `root` and of all loggers set here, with Python's names: for another process."""
        return {ROOT: logging.getLevelName(logging.getLogger().level), **self._set}

    def all(self) -> dict[str, Level]:
        """Loggers that have their own level, and `root`."""
        names = [name for name in _known() if logging.getLogger(name).level]
        return {name: self._level(name) for name in sorted([ROOT, *names])}

    def levels(self) -> dict[str, str]:
        """The effective level of every logger."""
        return {name: self._level(name)["level"] for name in [ROOT, *sorted(logging.root.manager.loggerDict)]}

    def one(self, name: str) -> Level:
        """Raises UnknownLogger."""
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise UnknownLogger(name)
        return self._level(name)

    def set(self, name: str, level: str, *, below: bool = True) -> list[str]:
        """Set a level, also of the loggers below this one. Returns the loggers that have another level now,
        as Kafka Connect does. Raises UnknownLogger, UnknownLevel.
        """
        wanted = _LEVELS[checked_level(level)]
        if name not in self._set and len(self._set) >= self._most_made:
            self.one(name)
        prefix = "" if name == ROOT else f"{name}."
        known = [each for each in _known() if each.startswith(prefix)]
        family = {name: _logger(name), **{each: _logger(each) for each in known}}
        before = {each: logger.getEffectiveLevel() for each, logger in family.items()}
        self._set[name] = wanted
        family[name].setLevel(wanted)
        for each in known if below else ():
            if family[each].level:
                family[each].setLevel(wanted)
            if each in self._set:
                self._set[each] = wanted
        after = {each: logger.getEffectiveLevel() for each, logger in family.items()}
        changed = sorted(each for each in family if before[each] != after[each])
        self._modified |= dict.fromkeys(changed, int(time.time() * 1000))
        return changed

    def unset(self, name: str) -> None:
        """Remove the logger's own level, so that it inherits that of its parent. Raises UnknownLogger."""
        self.one(name)
        self._set.pop(name, None)
        logging.getLogger(name).setLevel(logging.NOTSET)
        self._modified[name] = int(time.time() * 1000)

    def _level(self, name: str) -> Level:
        level = logging.getLevelName(_logger(name).getEffectiveLevel())
        return {"level": _SHOWN.get(level, level), "last_modified": self._modified.get(name)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _known() -> list[str]:
    """Loggers in use; the manager also has places for those above them."""
    found = logging.root.manager.loggerDict.items()
    return [name for name, logger in found if isinstance(logger, logging.Logger)]
