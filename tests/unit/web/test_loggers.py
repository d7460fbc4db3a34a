"""Levels of loggers: which names may be set, and what other processes are to have."""

from __future__ import annotations

import logging
import uuid

import pytest

from penstock.web.loggers import Loggers, UnknownLevel, UnknownLogger


@pytest.fixture
def name() -> str:
    return f"made.up.{uuid.uuid4().hex}"


def test_names_that_no_code_logs_under_are_taken_up_to_a_number(name: str) -> None:
    with pytest.raises(UnknownLogger):
        Loggers().set(name, "INFO")
    loggers = Loggers(most_made=2)
    assert loggers.set(f"{name}.a", "INFO") == [f"{name}.a"]
    loggers.set(f"{name}.b", "warn")
    with pytest.raises(UnknownLogger):
        loggers.set(f"{name}.c", "INFO")
    assert f"{name}.c" not in logging.root.manager.loggerDict
    loggers.set(f"{name}.a", "DEBUG")  # it is there
    assert loggers.for_others() | {"root": ""} == {"root": "", f"{name}.a": "DEBUG", f"{name}.b": "WARNING"}


def test_a_level_that_is_none_changes_nothing(name: str) -> None:
    loggers = Loggers(most_made=1)
    with pytest.raises(UnknownLevel):
        loggers.set(name, "LOUD")
    assert name not in logging.root.manager.loggerDict


def test_a_level_that_is_given_up_is_that_of_the_logger_above(name: str) -> None:
    loggers = Loggers(most_made=2)
    loggers.set(name, "ERROR")
    loggers.set(f"{name}.below", "DEBUG")
    loggers.unset(f"{name}.below")
    assert loggers.levels()[f"{name}.below"] == "ERROR"
    assert f"{name}.below" not in loggers.for_others()


@pytest.mark.promise(
    "connect", "`/admin/loggers` shows and sets levels, also of the loggers below one, as Kafka Connect does"
)
def test_a_level_is_also_that_of_the_loggers_below(name: str) -> None:
    loggers = Loggers(most_made=3)
    loggers.set(f"{name}.below", "DEBUG")
    assert loggers.set(name, "ERROR") == [name, f"{name}.below"]
    assert loggers.one(f"{name}.below")["level"] == "ERROR"
    assert loggers.for_others()[f"{name}.below"] == "ERROR"
    assert loggers.set(name, "ERROR") == []
    assert loggers.set(name, "INFO", below=False) == [name]
    assert loggers.one(f"{name}.below")["level"] == "ERROR"
