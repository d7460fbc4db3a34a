"""Imports dlt when a task needs it, without its telemetry, and translates its errors to Connect's."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

from penstock.connect.api import ConnectError, RetriableError


def load_dlt() -> Any:
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    return importlib.import_module("dlt")


def referenced(reference: str) -> Any:
    """The object that `module:name` refers to. ConnectError if it does not exist."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConnectError(f"{reference} is not of the form module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConnectError(f"{reference} cannot be loaded: {error}") from error


def arguments(text: str) -> dict[str, Any]:
    """Named arguments from a JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ConnectError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConnectError("it is not a JSON object")
    return found


def translated(doing: str, error: Exception) -> ConnectError:
    """dlt wraps errors, some of them several times: the causes show whether an error is retriable."""
    from dlt.common.exceptions import TerminalException, TransientException

    causes = list(_causes(error))
    text = f"{doing}: {type(causes[-1]).__name__}: {causes[-1]}"
    terminal = any(isinstance(each, TerminalException) for each in causes)
    passes = any(isinstance(each, (TransientException, OSError, EOFError)) for each in causes)
    return RetriableError(text) if passes and not terminal else ConnectError(text)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
