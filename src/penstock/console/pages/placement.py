"""Placement: brokers with what they carry, partitions with their replicas, moves, and leader elections."""

from __future__ import annotations

from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.partitions.execution import Copying
from penstock.console.pages.moving import MoveDialogs
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.live import Redrawn
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads import placement as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_COLUMNS = (
    Column("topic", "Topic", link=True),
    Column("partition", "Partition", number=True, sortable=False),
    Column("leader", "Leader", number=True),
    Column("replicas", "Replicas"),
    Column("isr", "In sync", sortable=False),
)
_MOVE = Column("move", "Move partition", button="drive_file_move")
_LIVE_SECONDS = 2.0


def register(site: Site) -> None:
    @ui.page("/placement")
    async def placement(request: Request) -> None:
        command = site.command("cluster", "describe")
        with frame(site, request, "Placement", command, section="/placement") as viewer:
            asked = request.query_params
            shown = asked.get("show", "")
            PlacementPage(site, viewer, asked.get("q", ""), shown if shown in reads.SHOWN else "all")


class PlacementPage:
    def __init__(self, site: Site, viewer: Viewer, text: str, shown: str) -> None:
        self._site, self._viewer = site, viewer
        dialogs = MoveDialogs(site, viewer, self._changed)
        if viewer.may(Role.ADMIN):
            with ui.row().classes("gap-2"):
                for label, icon, act in (
                    ("Rebalance", "balance", dialogs.rebalance),
                    ("Empty a broker", "logout", dialogs.vacate),
                    ("Elect leaders", "how_to_vote", dialogs.elect),
                ):
                    ui.button(label, icon=icon, on_click=act).props("no-caps outline")
        with ui.element("div").classes("card w-full"):
            with ui.row().classes("w-full items-center"):
                ui.label("Moving now").classes("font-bold")
                ui.space()
                self._controls = ui.row().classes("gap-2")
                if viewer.may(Role.ADMIN):
                    with self._controls:
                        self._rate = ui.number("Throttle, MiB/s", min=0.001).props("outlined dense")
                        self._rate.classes("w-36")
                        ui.button("Throttle", on_click=self._throttle).props("no-caps outline")
                        ui.button("Cancel all", on_click=lambda: self._cancel(None)).props(
                            "no-caps outline color=negative"
                        )
                self._controls.set_visibility(False)
            self._moving = Redrawn(ui.column().classes("w-full gap-2"))
            command_line(site.command("cluster", "reassign", "--status"))
        self._brokers = Redrawn(ui.element("div").classes("w-full"))
        ui.label("Partitions").classes("font-bold")
        with ui.row().classes("w-full items-center gap-2"):
            holder = ui.row().classes("grow items-center").style("min-width: 160px")
            self._show = ui.select(list(reads.SHOWN), value=shown, label="Show").props("outlined dense")
            self._show.classes("w-48")
        self._table = PagedTable(
            (*_COLUMNS, *((_MOVE,) if viewer.may(Role.ADMIN) else ())),
            self._load,
            key="id",
            sort="topic",
            text=text,
            placeholder="Filter by topic",
            on_button=lambda column, row: dialogs.move(row["topic"], row["partition"], row["replicas"]),
        )
        self._table.filter.move(holder)
        self._show.on_value_change(self._table.refresh)
        self._keys: list[tuple[str, int]] = []
        self._was_moving = False
        soon(self._table.refresh)
        soon(self._fill)
        soon(self._look)
        ui.timer(_LIVE_SECONDS, self._look, immediate=False)

    async def _changed(self) -> None:
        await self._look()
        await self._fill()
        await self._table.refresh()

    async def _load(self, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        shown = self._show.value
        ui.navigate.history.replace(f.link("/placement", q=wanted.text, show="" if shown == "all" else shown))
        found, total = await read(
            reads.partitions,
            self._site.cluster,
            text=wanted.text,
            shown=shown,
            sort=wanted.sort,
            descending=wanted.descending,
            first=wanted.first,
            count=wanted.count,
        )
        return [
            {
                "id": f"{one.topic}-{one.index}",
                "topic": one.topic,
                "topic_href": f"/topics/{one.topic}",
                "partition": one.index,
                "leader": "none" if one.leader < 0 else one.leader,
                "replicas": ", ".join(map(str, one.replicas)),
                "isr": ", ".join(map(str, one.isr)),
            }
            for one in found
        ], total

    async def _fill(self) -> None:
        try:
            rows = await read(reads.brokers, self._site.cluster)
        except Exception as error:  # noqa: BLE001 - shown instead of the brokers
            failure = error
            self._brokers.show(str(failure), lambda: show_failure(failure))
            return
        self._brokers.show(rows, lambda: _show_brokers(rows))

    async def _look(self) -> None:
        try:
            found = await read(reads.under_way, self._site.cluster)
        except Exception as error:  # noqa: BLE001 - shown instead of them
            failure = error
            self._moving.show(str(failure), lambda: show_failure(failure))
            return
        self._keys = [(each.moving.topic, each.moving.index) for each in found]
        self._controls.set_visibility(bool(found))
        self._moving.show(found, lambda: self._show_moving(found))
        if self._was_moving and not found:
            if self._viewer.may(Role.ADMIN):
                await read(reads.lift_throttle_if_idle, self._viewer.cluster)
            await self._fill()
            await self._table.refresh()
        self._was_moving = bool(found)

    def _show_moving(self, found: list[Copying]) -> None:
        if not found:
            ui.label("No reassignment is in progress.").classes("muted")
        for each in found[:50]:
            one = each.moving
            with ui.row().classes("w-full items-center gap-2"):
                ui.link(f"{one.topic}-{one.index}", f"/topics/{one.topic}").classes("link mono break-all")
                ui.label(f"{_numbers(one.source)} → {_numbers(one.target)}").classes("mono no-wrap")
                share = each.copied / each.bytes if each.bytes else 0.0
                ui.linear_progress(value=round(share, 3), show_value=False).classes("grow").style(
                    "min-width: 80px"
                )
                ui.label(f"{f.size(each.copied)} of {f.size(each.bytes)}").classes("muted no-wrap")
                if self._viewer.may(Role.ADMIN):
                    ui.button(icon="close", on_click=partial(self._cancel, (one.topic, one.index))).props(
                        'flat dense round size=sm aria-label="Cancel this move"'
                    )
        if len(found) > 50:
            ui.label(f"and {len(found) - 50:,} more").classes("muted")

    async def _cancel(self, key: tuple[str, int] | None) -> None:
        keys = list(self._keys) if key is None else [key]
        named = ", ".join(f"{topic}-{index}" for topic, index in keys[:5])
        cluster = self._viewer.cluster
        if await attempt(
            self._viewer,
            Role.ADMIN,
            f"cancel the move of {named}{' and more' if len(keys) > 5 else ''}",
            lambda: reads.cancel(cluster, keys),
            done="The move was cancelled." if len(keys) == 1 else f"{len(keys)} moves were cancelled.",
        ):
            await self._look()

    async def _throttle(self) -> None:
        rate = int(float(self._rate.value or 0) * (1 << 20))
        cluster = self._viewer.cluster

        def change() -> None:
            if rate < 1:
                raise ValueError("Give the throttle in MiB a second.")
            reads.throttle(cluster, rate)

        await attempt(
            self._viewer,
            Role.ADMIN,
            f"throttle the moves to {f.size(rate)} a second",
            change,
            done="The throttle was set.",
        )


def _show_brokers(rows: list[reads.BrokerRow]) -> None:
    most = max((row.replicas for row in rows), default=0)
    with ui.element("div").classes("tiles"):
        for row in rows:
            with ui.element("div").classes("card"):
                with ui.row().classes("w-full items-center gap-2"):
                    ui.label(f"Broker {row.id}").classes("font-bold")
                    if row.controller:
                        ui.badge("controller")
                    if not row.up:
                        ui.badge("not up").props("color=negative")
                ui.label(row.address or "-").classes("mono muted break-all")
                if row.rack:
                    ui.label(f"rack {row.rack}").classes("muted")
                ui.linear_progress(value=row.replicas / most if most else 0, show_value=False)
                ui.label(f"{f.count(row.replicas)} replicas, leads {f.count(row.leaders)}")
                ui.label(f.size(row.bytes)).classes("muted")


def _numbers(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
