"""The form for a new connector: the settings that its plugin reports, with validation errors."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read
from penstock.console.reads import connectors as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

NEEDED = Role.ADMIN
"""As on the worker, for which the console may be an administrator: settings name code, files and secrets."""
_OF_THE_FORM = ("name", "connector.class")


def connector_form(site: Site, viewer: Viewer) -> ui.dialog:
    values: dict[str, str] = {}
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 800px"):
        ui.label("Create a connector").classes("text-lg font-bold")
        name = ui.input("Name").props("outlined dense").classes("w-full")
        plugin = ui.select([], label="Class", with_input=True).props("outlined dense").classes("w-full")
        every = ui.switch("All settings")
        area = (
            ui.column().classes("w-full gap-2").style("max-height: 50vh; overflow: auto; flex-wrap: nowrap")
        )

        async def draw() -> None:
            if not plugin.value:
                return
            given = {"name": name.value or "", **values}
            try:
                viewer.require(NEEDED, "validate the settings")
                fields = await read(reads.validate, site.worker, plugin.value, given)
            except Exception as error:  # noqa: BLE001 - shown to the person
                complain(error, "validate the settings")
                return
            area.clear()
            with area:
                for each in fields:
                    if each.name not in _OF_THE_FORM and (
                        every.value or each.required or each.errors or each.name in values
                    ):
                        _field(each, values)

        async def chosen() -> None:
            values.clear()
            await draw()

        async def create() -> None:
            config = {**values, "connector.class": plugin.value or ""}
            wanted = (name.value or "").strip()
            if await attempt(
                viewer,
                NEEDED,
                f"create connector '{wanted}'",
                lambda: reads.create_connector(site.worker, wanted, config),
            ):
                dialog.close()
                ui.navigate.to(f.link("/connector", name=wanted))
            else:
                await draw()

        async def fill() -> None:
            try:
                plugin.set_options(await read(reads.plugins, site.worker))
            except Exception as error:  # noqa: BLE001 - shown to the person
                complain(error, "list the plugins")

        plugin.on_value_change(chosen)
        every.on_value_change(draw)
        dialog.on("show", fill)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Validate", on_click=draw).props("outline no-caps")
            ui.button("Create", on_click=create).props("no-caps")
    return dialog


def _field(field: reads.Field, values: dict[str, str]) -> None:
    def keep(value: Any) -> None:
        if value is None or value == "":
            values.pop(field.name, None)
        else:
            values[field.name] = str(value)

    label = field.name + (" *" if field.required else "")
    now = values.get(field.name, "")
    with ui.element("div").classes("w-full"):
        if field.choices and len(field.choices) <= 50:
            options = list(dict.fromkeys([*field.choices, *([now] if now else [])]))
            # A class may be one that no list has, such as a Python function as a transform.
            more: Any = "add-unique" if field.kind == "CLASS" else None
            ui.select(
                options,
                value=now or None,
                label=label,
                on_change=lambda e: keep(e.value),
                new_value_mode=more,
            ).props("outlined dense clearable").classes("w-full")
        else:
            box = ui.input(label, value=now, on_change=lambda e: keep(e.value)).props("outlined dense")
            box.classes("w-full")
            if field.kind == "PASSWORD":
                box.props("type=password")
            if field.default not in (None, ""):
                box.props["placeholder"] = f"default: {field.default}"
        if field.doc:
            ui.label(field.doc).classes("muted text-xs")
        for error in field.errors:
            ui.label(error).classes("bad text-xs")
