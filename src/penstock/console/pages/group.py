"""A group: members, their assignment, lag in records and seconds with a chart, and resetting offsets."""

from __future__ import annotations

from collections import deque
from time import time
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.groups.model import Group
from penstock.admin.groups.reset import Move
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read, show_failure, soon
from penstock.console.parts.curves import Curves
from penstock.console.parts.frame import frame
from penstock.console.reads.groups import apply_reset, find_group, position_of, preview_reset
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_LIVE_SECONDS = 3.0
_TARGETS = {
    "earliest": "The earliest record",
    "latest": "The end",
    "offset": "An offset",
    "time": "A time",
    "shift": "Shift by",
}
_PARTITIONS = (
    ("topic", "Topic", False),
    ("partition", "Partition", True),
    ("committed", "Committed", True),
    ("end", "End", True),
    ("lag", "Lag", True),
    ("seconds", "Behind", True),
    ("member", "Member", False),
)
_MEMBERS = (
    ("client", "Client", False),
    ("host", "Host", False),
    ("member", "Member id", False),
    ("assigned", "Assigned", False),
)


def register(site: Site) -> None:
    @ui.page("/group")
    async def group(request: Request, id: str = "") -> None:
        command = site.command("groups", "describe", id)
        with frame(site, request, id or "Group", command, section="/groups") as viewer:
            with ui.row().classes("w-full items-center justify-between"):
                summary = ui.label("").classes("muted")
                if viewer.may(Role.ADMIN):
                    dialog = _reset(site, viewer, id)
                    reset = ui.button("Reset offsets", icon="restart_alt", on_click=dialog.open)
                    reset.props("no-caps outline")
                else:
                    reset = None
            problem = ui.element("div").classes("w-full")
            with ui.element("div").classes("curves"):
                lag = Curves("Lag", "records")
                age = Curves("Age of the oldest record not consumed", "seconds")
            partitions = _table(_PARTITIONS, "Partitions")
            members = _table(_MEMBERS, "Members")
            history: deque[tuple[float, int, float]] = deque(maxlen=300)

            async def refresh() -> None:
                problem.clear()
                try:
                    found = await read(find_group, site.cluster, id)
                except Exception as error:  # noqa: BLE001 - shown on the page
                    with problem:
                        show_failure(error)
                    return
                if reset is not None:  # a share group has no committed offsets
                    reset.set_visibility(found.type != "share")
                total = sum(each.lag or 0 for each in found.partitions)
                oldest = max((each.lag_seconds or 0.0 for each in found.partitions), default=0.0)
                history.append((time(), total, oldest))
                summary.text = (
                    f"{found.type} group, {found.state}, {len(found.members)} members, "
                    f"{f.count(total)} records behind"
                )
                times = [at for at, _, _ in history]
                lag.show(times, {"lag": [behind for _, behind, _ in history]})
                age.show(times, {"age": [seconds for _, _, seconds in history]})
                partitions.rows = _partition_rows(found)
                members.rows = _member_rows(found)
                partitions.update()
                members.update()

            soon(refresh)
            ui.timer(_LIVE_SECONDS, refresh, immediate=False)


def _table(columns: tuple[tuple[str, str, bool], ...], title: str) -> ui.table:
    ui.label(title).classes("font-bold")
    return (
        ui.table(
            columns=[
                {
                    "name": name,
                    "label": label,
                    "field": name,
                    "align": "right" if number else "left",
                    "sortable": True,
                    "classes": "cell",
                }
                for name, label, number in columns
            ],
            rows=[],
            row_key="id",
            pagination=50,
        )
        .classes("w-full")
        .props('flat dense no-data-label="None."')
    )


def _partition_rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{each.topic}-{each.partition}",
            "topic": each.topic,
            "partition": each.partition,
            "committed": f.count(each.committed),
            "end": f.count(each.end),
            "lag": f.count(each.lag),
            "seconds": f.seconds(each.lag_seconds),
            "member": each.member.client_id if each.member is not None else "-",
        }
        for each in group.partitions
    ]


def _member_rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "id": each.member_id,
            "client": each.client_id,
            "host": each.host.lstrip("/"),
            "member": each.member_id,
            "assigned": ", ".join(f"{topic}-{index}" for topic, index in each.assignment) or "-",
        }
        for each in group.members
    ]


def _reset(site: Site, viewer: Viewer, group: str) -> ui.dialog:
    """Two steps: a preview of every offset, then a button that applies it."""
    planned: list[Move] = []
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 800px"):
        ui.label("Reset offsets").classes("text-lg font-bold")
        ui.label("The group must have no active members.").classes("muted")
        with ui.row().classes("w-full items-end"):
            kind = ui.select(_TARGETS, value="earliest", label="To").props("outlined dense").classes("w-56")
            value = ui.input("Offset, time (2024-05-01T12:00, -15m) or number of records")
            value.props("outlined dense").classes("grow")
            value.bind_visibility_from(kind, "value", lambda one: one not in ("earliest", "latest"))
        topic = ui.input("Only this topic (empty: all)").props("outlined dense").classes("w-full")
        area = ui.element("div").classes("w-full")

        async def preview() -> None:
            planned.clear()
            move.disable()
            area.clear()
            try:
                where = position_of(kind.value, value.value or "")
                topics = [topic.value.strip()] if (topic.value or "").strip() else []
                found = await read(preview_reset, site.cluster, group, where, topics)
            except Exception as error:  # noqa: BLE001 - shown to the person
                complain(error, "preview the reset")
                return
            planned.extend(found.moves)
            with area:
                if found.refused is not None:
                    ui.label(f"The reset would be rejected now: {found.refused}").classes("warn")
                _moves(found.moves)
            if found.refused is None:
                move.enable()

        async def carry_out() -> None:
            if await attempt(
                viewer,
                Role.ADMIN,
                f"reset the offsets of group '{group}'",
                lambda: apply_reset(viewer.cluster, group, list(planned)),
                done=f"{len(planned)} offsets were moved.",
            ):
                dialog.close()

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Preview", on_click=preview).props("outline no-caps")
            move = ui.button("Move offsets", on_click=carry_out).props("color=negative no-caps")
            move.disable()
        for each in (kind, value, topic):  # exactly the previewed change is applied
            each.on_value_change(move.disable)
    return dialog


def _moves(moves: list[Move]) -> None:
    columns = (
        ("topic", "Topic", False),
        ("partition", "Partition", True),
        ("committed", "Committed", True),
        ("new", "New", True),
        ("change", "Change", True),
    )
    table = _table(columns, "Preview")
    table.rows = [
        {
            "id": f"{each.topic}-{each.partition}",
            "topic": each.topic,
            "partition": each.partition,
            "committed": f.count(each.committed),
            "new": f.count(each.new),
            "change": "-" if each.committed is None else f"{each.new - each.committed:+,}",
        }
        for each in moves
    ]
