"""How pages execute actions: in a thread, with errors shown as a message, and permissions checked every
time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from nicegui import ui

from penstock.admin.cluster import kafka_exception
from penstock.admin.failure import reason
from penstock.console.threads import in_pool
from penstock.console.viewer import Viewer
from penstock.errors import PenstockError
from penstock.web.access import Role

log = logging.getLogger(__name__)

T = TypeVar("T")


def message_of(error: BaseException) -> str | None:
    """The message for the user; None if it is a bug of the console."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, kafka_exception()):
        return reason(error.args[0])
    if isinstance(error, PenstockError | ValueError):
        return str(error)
    return None


async def read(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a blocking read in a thread and return its result."""
    return await in_pool(function, *arguments, **named)


def sentence_of(error: BaseException) -> str:
    """The text that a page shows instead of data that it could not read. Bugs of the console are logged."""
    text = message_of(error)
    if text is None:
        log.exception("a page failed", exc_info=error)
        text = "The console failed to show this; its log has the reason."
    return text


def show_failure(error: BaseException) -> None:
    text = sentence_of(error)
    with ui.row().classes("card w-full items-center no-wrap").props('role="alert"'):
        ui.icon("error_outline").classes("bad")
        ui.label(text).classes("break-words")


async def attempt(
    viewer: Viewer, role: Role, action: str, function: Callable[[], object], done: str = ""
) -> bool:
    """Carry out an action if the role allows it, and report the result. Returns whether it succeeded."""
    client = ui.context.client  # the dialog whose button was pressed may be deleted meanwhile
    try:
        viewer.require(role, action)
        await in_pool(function)
    except Exception as error:  # noqa: BLE001 - whatever it is, the person gets a message
        with client:
            complain(error, action)
        return False
    log.info("user %s: %s", viewer.principal.name, action)
    if done:
        with client:
            ui.notify(done, type="positive")
    return True


def complain(error: BaseException, action: str) -> None:
    """A message with the reason why an action failed."""
    text = message_of(error)
    if text is None:
        log.exception("cannot %s", action, exc_info=error)
        text = f"Cannot {action}: the console's log has the reason."
    ui.notify(text, type="negative", multi_line=True, timeout=10_000, close_button="Close")


def soon(function: Callable[[], Awaitable[object]]) -> None:
    """Fill in slow parts when the page is shown, so that the browser does not wait for the cluster."""
    ui.timer(0.0, function, once=True)
