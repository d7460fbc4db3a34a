"""A topic: its messages, partitions and settings, and the actions on it."""

from __future__ import annotations

from nicegui import ui
from starlette.requests import Request

from penstock.console.pages.messages import messages_tab
from penstock.console.pages.topic_settings import settings_tab
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.parts.dialogs import confirm_by_name
from penstock.console.parts.frame import frame
from penstock.console.reads.messages import Query
from penstock.console.reads.topics import add_partitions, delete_topic, empty_topic, partitions_of
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role


def register(site: Site) -> None:
    @ui.page("/topics/{name}")
    async def topic(request: Request, name: str) -> None:
        command = site.command("topics", "describe", name)
        with frame(site, request, name, command, section="/topics") as viewer:
            with ui.row().classes("w-full items-center justify-between"):
                with ui.tabs().props("no-caps dense align=left") as tabs:
                    for tab in ("Messages", "Partitions", "Settings"):
                        ui.tab(tab)
                if viewer.may(Role.ADMIN):
                    _actions(site, viewer, name)
            with ui.tab_panels(tabs, value="Messages").classes("w-full bg-transparent"):
                with ui.tab_panel("Messages").classes("q-pa-none gap-3"):
                    messages_tab(site, viewer, name, Query.of(request.query_params))
                with ui.tab_panel("Partitions").classes("q-pa-none"):
                    _partitions(site, name)
                with ui.tab_panel("Settings").classes("q-pa-none"):
                    settings_tab(site, viewer, name)


def _actions(site: Site, viewer: Viewer, name: str) -> None:
    async def grow() -> None:
        total = int(more.value or 0)
        if await attempt(
            viewer,
            Role.ADMIN,
            f"add partitions to '{name}'",
            lambda: add_partitions(viewer.cluster, name, total),
            done=f"{name} has {total} partitions now.",
        ):
            growth.close()
            ui.navigate.reload()

    async def empty() -> None:
        await attempt(
            viewer,
            Role.ADMIN,
            f"empty topic '{name}'",
            lambda: empty_topic(viewer.cluster, name),
            done=f"{name} is empty.",
        )

    async def delete() -> None:
        if await attempt(
            viewer, Role.ADMIN, f"delete topic '{name}'", lambda: delete_topic(viewer.cluster, name)
        ):
            ui.navigate.to("/topics")

    with ui.dialog() as growth, ui.card():
        ui.label("Add partitions").classes("text-lg font-bold")
        ui.label("Records with a key may go to other partitions than before.").classes("muted")
        more = ui.number("Partitions in all", min=1, precision=0).props("outlined dense autofocus")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=growth.close).props("flat no-caps")
            ui.button("Add", on_click=grow).props("no-caps")
    emptying = confirm_by_name(
        "Empty the topic", "Every record that it has now is deleted, for good.", name, "Empty", empty
    )
    deletion = confirm_by_name(
        "Delete the topic", "The topic and all its records are deleted, for good.", name, "Delete", delete
    )
    with ui.dropdown_button("Actions", auto_close=True).props("no-caps outline"):
        ui.item("Add partitions", on_click=growth.open)
        ui.item("Empty", on_click=emptying.open)
        ui.item("Delete", on_click=deletion.open).classes("bad")


def _partitions(site: Site, name: str) -> None:
    area = ui.element("div").classes("w-full")

    async def fill() -> None:
        try:
            found = await read(partitions_of, site.cluster, name)
        except Exception as error:  # noqa: BLE001 - shown instead of the table
            with area:
                show_failure(error)
            return
        columns = [
            {
                "name": key,
                "label": label,
                "field": key,
                "align": "right" if number else "left",
                "sortable": True,
            }
            for key, label, number in (
                ("partition", "Partition", True),
                ("leader", "Leader", True),
                ("replicas", "Replicas", False),
                ("isr", "In sync", False),
                ("earliest", "Earliest", True),
                ("latest", "Latest", True),
                ("records", "Records", True),
                ("size", "Size", True),
            )
        ]
        rows = [
            {
                "partition": row.partition,
                "leader": "none" if row.leader is None else row.leader,
                "replicas": ", ".join(map(str, row.replicas)),
                "isr": ", ".join(map(str, row.isr)),
                "earliest": f.count(row.earliest),
                "latest": f.count(row.latest),
                "records": f.count(
                    None if row.latest is None or row.earliest is None else row.latest - row.earliest
                ),
                "size": f.size(row.size),
            }
            for row in found
        ]
        area.clear()
        with area:
            ui.table(columns=columns, rows=rows, row_key="partition", pagination=50).classes("w-full").props(
                "flat dense"
            )

    soon(fill)
