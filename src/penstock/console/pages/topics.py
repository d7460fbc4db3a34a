"""Topics: the list, and creating a topic."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, soon
from penstock.console.parts.frame import frame
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads.topics import HEALTHS, create_topic, list_topics, parse_settings
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_COLUMNS = (
    Column("name", "Topic", link=True),
    Column("health", "Health", sortable=False, status=True),
    Column("partitions", "Partitions", number=True),
    Column("replication", "Replicas", number=True),
    Column("records", "Records", number=True),
    Column("size", "Size", number=True),
    Column("rate", "Rate", number=True),
)
_HEALTHS = {"": "Any", **{each: each for each in HEALTHS}}


def register(site: Site) -> None:
    @ui.page("/topics")
    async def topics(request: Request) -> None:
        site.sampler.watch()
        with frame(site, request, "Topics", site.command("topics", "list"), section="/topics") as viewer:
            internal = request.query_params.get("internal") == "1"

            async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
                site.sampler.watch()
                ui.navigate.history.replace(
                    f.link(
                        "/topics",
                        q=wanted.text,
                        internal="1" if switch.value else "",
                        health=health.value,
                    )
                )
                found = await read(
                    list_topics,
                    site.cluster,
                    site.sampler,
                    text=wanted.text,
                    internal=switch.value,
                    health=health.value,
                    sort=wanted.sort,
                    descending=wanted.descending,
                    first=wanted.first,
                    count=wanted.count,
                )
                return [
                    {
                        "name": row.name,
                        "name_href": f"/topics/{row.name}",
                        "health": row.health,
                        "partitions": row.partitions,
                        "replication": row.replication,
                        "records": f.count(row.records),
                        "size": f.size(row.size),
                        "rate": f.rate(row.rate),
                    }
                    for row in found.rows
                ], found.total

            with ui.row().classes("w-full items-center gap-2"):
                holder = ui.row().classes("grow items-center")
                asked = request.query_params.get("health", "")
                health = (
                    ui.select(_HEALTHS, value=asked if asked in _HEALTHS else "", label="Health")
                    .props("outlined dense")
                    .classes("w-40")
                )
                switch = ui.switch("Internal", value=internal)
                if viewer.may(Role.WRITE):
                    dialog = _creation(site, viewer)
                    ui.button("Create topic", icon="add", on_click=dialog.open).props("no-caps")
            table = PagedTable(
                _COLUMNS, load, key="name", sort="name", text=request.query_params.get("q", "")
            )
            table.filter.move(holder)
            for each in (switch, health):
                each.on_value_change(table.refresh)
            soon(table.refresh)


def _creation(site: Site, viewer: Viewer) -> ui.dialog:
    with ui.dialog() as dialog, ui.card().classes("w-full"):
        ui.label("Create a topic").classes("text-lg font-bold")
        name = ui.input("Name").props("outlined dense autofocus").classes("w-full")
        partitions = ui.number("Partitions", value=1, min=1, precision=0).props("outlined dense")
        replicas = ui.number("Replicas (-1: the cluster's default)", value=-1, min=-1, precision=0)
        replicas.props("outlined dense").classes("w-full")
        settings = ui.textarea("Settings, one KEY=VALUE per line").props("outlined dense").classes("w-full")

        async def create() -> None:
            topic = (name.value or "").strip()
            count, copies = int(partitions.value or 1), int(replicas.value or -1)
            created = await attempt(
                viewer,
                Role.WRITE,
                f"create topic '{topic}'",
                lambda: create_topic(
                    viewer.cluster, topic, count, copies, parse_settings(settings.value or "")
                ),
            )
            if created:
                ui.navigate.to(f"/topics/{topic}")

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Create", on_click=create).props("no-caps")
    return dialog
