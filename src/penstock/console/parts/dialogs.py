"""Dialogs: dangerous actions require typing the name of what they change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui


def confirm_by_name(
    title: str, warning: str, name: str, verb: str, act: Callable[[], Awaitable[object]]
) -> ui.dialog:
    """A dialog whose button is enabled when `name` has been typed; `act` checks the permissions itself."""
    with ui.dialog() as dialog, ui.card().classes("w-full"):
        ui.label(title).classes("text-lg font-bold")
        ui.label(warning)
        ui.label("Type the name to go on:").classes("muted")
        ui.label(name).classes("mono break-all")
        typed = ui.input("Name").props("autofocus outlined dense").classes("w-full")

        async def go() -> None:
            if typed.value != name:
                ui.notify("The name does not match.", type="warning")
                return
            dialog.close()
            await act()

        typed.on("keydown.enter", go)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button(verb, on_click=go).props("color=negative no-caps")
    return dialog
