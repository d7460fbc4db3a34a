"""The settings of a topic with their documentation, and changing them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.reads.topics import DocumentedSetting, change_setting, settings_of
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role


def settings_tab(site: Site, viewer: Viewer, topic: str) -> None:
    filter_box = (
        ui.input(placeholder="Filter settings").props("outlined dense clearable").classes("w-full q-mb-sm")
    )
    area = ui.column().classes("w-full gap-1")

    async def fill() -> None:
        try:
            found = await read(settings_of, site.cluster, topic)
        except Exception as error:  # noqa: BLE001 - shown instead of the settings
            with area:
                show_failure(error)
            return
        area.clear()
        with area:
            for each in found:
                row = _row(site, viewer, topic, each, fill)
                row.bind_visibility_from(filter_box, "value", _named(each.setting.name))

    soon(fill)


def _named(name: str) -> Callable[[str | None], bool]:
    return lambda text: (text or "").lower() in name


def _row(
    site: Site, viewer: Viewer, topic: str, each: DocumentedSetting, refresh: Callable[[], Awaitable[None]]
) -> ui.element:
    setting = each.setting
    with ui.element("div").classes("card w-full") as row:
        with ui.row().classes("w-full items-center gap-2"):
            ui.label(setting.name).classes("mono font-bold break-all")
            ui.label("(hidden)" if setting.sensitive else str(setting.value)).classes("mono break-all")
            ui.badge(setting.source).props("outline" if setting.source == "default" else "color=primary")
            ui.space()
            if viewer.may(Role.ADMIN) and not setting.read_only:
                ui.button(icon="edit", on_click=lambda: _edit(site, viewer, topic, each, refresh)).props(
                    f'flat dense round size=sm aria-label="Change {setting.name}"'
                )
        if each.doc:
            ui.label(each.doc).classes("muted")
    return row


def _edit(
    site: Site, viewer: Viewer, topic: str, each: DocumentedSetting, refresh: Callable[[], Awaitable[None]]
) -> None:
    setting = each.setting

    async def change(value: str | None) -> None:
        if await attempt(
            viewer,
            Role.ADMIN,
            f"change {setting.name} of '{topic}'",
            lambda: change_setting(viewer.cluster, topic, setting.name, value),
            done=f"{setting.name} was changed.",
        ):
            dialog.close()
            await refresh()

    with ui.dialog() as dialog, ui.card().classes("w-full"):
        ui.label(setting.name).classes("text-lg font-bold mono break-all")
        if each.doc:
            ui.label(each.doc).classes("muted")
        value = (
            ui.input("Value", value=setting.value or "").props("outlined dense autofocus").classes("w-full")
        )
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            if setting.source == "topic":
                ui.button("Reset to default", on_click=lambda: change(None)).props("flat no-caps")
            ui.button("Save", on_click=lambda: change(value.value)).props("no-caps")
    dialog.open()
