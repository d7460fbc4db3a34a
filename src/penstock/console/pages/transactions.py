"""Transactions: hanging ones, the list of all, one with its partitions, and ending them."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.positions import iso_time
from penstock.admin.transactions import DescribedTransaction, OpenTransaction
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.parts.dialogs import confirm_by_name
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.live import Redrawn
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads import transactions as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_COLUMNS = (
    Column("id", "Transactional id", link=True),
    Column("state", "State", status=True),
    Column("seconds", "Open for", number=True),
    Column("partitions", "Partitions", number=True),
    Column("producer_id", "Producer id", number=True),
    Column("coordinator", "Coordinator"),
)
_AGES = {0: "any time", 60: "1 minute", 900: "15 minutes", 3600: "1 hour"}
_LIVE_SECONDS = 5.0


def register(site: Site) -> None:
    @ui.page("/transactions")
    async def transactions(request: Request) -> None:
        command = site.command("transactions", "list")
        with frame(site, request, "Transactions", command, section="/transactions") as viewer:
            _hanging(site, viewer)
            ui.label("Transactional ids").classes("font-bold")

            async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
                ui.navigate.history.replace(f.link("/transactions", q=wanted.text))
                found = await read(
                    reads.page_of_transactions,
                    site.cluster,
                    text=wanted.text,
                    sort=wanted.sort,
                    descending=wanted.descending,
                    first=wanted.first,
                    count=wanted.count,
                )
                return [_row(row) for row in found.rows], found.total

            text = request.query_params.get("q", "")
            holder = ui.row().classes("w-full")
            table = PagedTable(_COLUMNS, load, key="id", sort="seconds", descending=True, text=text)
            table.filter.move(holder)
            soon(table.refresh)
            ui.timer(_LIVE_SECONDS, table.refresh, immediate=False)

    @ui.page("/transaction")
    async def transaction(request: Request, id: str = "") -> None:
        command = site.command("transactions", "describe", id)
        with frame(site, request, id or "Transaction", command, section="/transactions") as viewer:
            _one(site, viewer, id)


def _row(row: reads.TransactionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "id_href": f.link("/transaction", id=row.id),
        "state": row.state,
        "seconds": f.seconds(row.seconds),
        "partitions": f.count(row.partitions),
        "producer_id": row.producer_id,
        "coordinator": row.coordinator,
    }


def _hanging(site: Site, viewer: Viewer) -> None:
    """Asks every partition, so it runs only when the page opens or when the user asks for it."""
    with ui.element("div").classes("card w-full"):
        with ui.row().classes("w-full items-center gap-2"):
            ui.label("Hanging transactions").classes("font-bold")
            ui.space()
            age = (
                ui.select(_AGES, value=900, label="Last record before")
                .props("outlined dense")
                .classes("w-40")
            )
            again = ui.button("Look again", icon="refresh").props("no-caps outline")
        ui.label("No coordinator will end them: consumers with read_committed wait there.").classes("muted")
        area = ui.column().classes("w-full gap-1")

    async def look() -> None:
        area.clear()
        with area:
            ui.spinner(size="20px")
        try:
            found = await read(reads.hanging, site.cluster, float(age.value))
        except Exception as error:  # noqa: BLE001 - shown instead of them
            area.clear()
            with area:
                show_failure(error)
            return
        area.clear()
        with area:
            for each in found:
                _hanging_row(site, viewer, each, look)
            if not found:
                with ui.row().classes("items-center gap-2"):
                    ui.icon("check_circle").classes("ok")
                    ui.label("No transaction hangs.").classes("muted")
            command_line(site.command("transactions", "list", "--hanging", "--older-than", f"{age.value}s"))

    again.on_click(look)
    age.on_value_change(look)
    soon(look)


def _hanging_row(site: Site, viewer: Viewer, each: OpenTransaction, look: Any) -> None:
    where = f"{each.topic}-{each.partition}"

    async def abort() -> None:
        await attempt(
            viewer,
            Role.ADMIN,
            f"abort the hanging transaction in {where} at offset {each.start_offset}",
            partial(reads.abort_hanging, viewer.cluster, each),
            done=f"The transaction in {where} was aborted.",
        )
        await look()

    with ui.row().classes("w-full items-center gap-2"):
        ui.link(where, f"/topics/{each.topic}").classes("link mono")
        ui.label(
            f"from offset {each.start_offset}, producer {each.producer_id} epoch {each.producer_epoch}, "
            f"last record {iso_time(each.last_timestamp)}"
        ).classes("muted")
        ui.space()
        if viewer.may(Role.ADMIN):
            dialog = confirm_by_name(
                "Abort the hanging transaction",
                "An abort marker is written: its records in this partition are never seen by read_committed.",
                where,
                "Abort",
                abort,
            )
            ui.button("Abort", on_click=dialog.open).props("flat dense no-caps color=negative")


def _one(site: Site, viewer: Viewer, id: str) -> None:
    abort_button = None
    if viewer.may(Role.ADMIN):

        async def abort() -> None:
            await attempt(
                viewer,
                Role.ADMIN,
                f"abort the transaction of '{id}'",
                partial(reads.abort, viewer.cluster, id),
                done=f"The transaction of {id} was aborted.",
            )
            await refresh()

        dialog = confirm_by_name(
            "Abort the transaction",
            "Its producer is fenced and gets an error at its next step.",
            id,
            "Abort",
            abort,
        )
        abort_button = ui.button("Abort", icon="cancel", on_click=dialog.open)
        abort_button.props("no-caps outline color=negative").set_visibility(False)
    area = Redrawn(ui.column().classes("w-full gap-3"))

    async def refresh() -> None:
        try:
            found = await read(reads.transaction_of, site.cluster, id)
        except Exception as error:  # noqa: BLE001 - shown on the page
            failure = error
            area.show(str(failure), lambda: show_failure(failure))
            return
        if abort_button is not None:
            abort_button.set_visibility(found.under_way)
        age = f.seconds(reads.age_of(found, time.time()))
        area.show((found, age), lambda: _detail(found, age))

    soon(refresh)
    ui.timer(_LIVE_SECONDS, refresh, immediate=False)


def _detail(found: DescribedTransaction, age: str) -> None:
    with ui.element("div").classes("tiles"):
        for name, value in (
            ("State", found.state),
            ("Open for", age),
            ("Timeout", f.seconds(found.timeout_ms / 1000)),
            ("Producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
            ("Coordinator", found.coordinator),
        ):
            with ui.element("div").classes("card"):
                ui.label(name).classes("muted")
                ui.label(value).classes("font-bold break-all")
    ui.label("Partitions").classes("font-bold")
    for topic, index in found.partitions:
        ui.link(f"{topic}-{index}", f"/topics/{topic}").classes("link mono")
    if not found.partitions:
        ui.label("None.").classes("muted")
