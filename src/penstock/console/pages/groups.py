"""Groups: the list, with their lag."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts import format as f
from penstock.console.parts.acting import read, soon
from penstock.console.parts.frame import frame
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads.groups import page_of_groups
from penstock.console.site import Site

_COLUMNS = (
    Column("group", "Group", link=True),
    Column("type", "Type"),
    Column("state", "State", status=True),
    Column("lag", "Lag", number=True),
)
_LIVE_SECONDS = 5.0


def register(site: Site) -> None:
    @ui.page("/groups")
    async def groups(request: Request) -> None:
        site.sampler.watch()
        with frame(site, request, "Groups", site.command("groups", "list"), section="/groups"):

            async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
                site.sampler.watch()
                ui.navigate.history.replace(f.link("/groups", q=wanted.text))
                await read(site.sampler.wait, 2.0)
                found = await read(
                    page_of_groups,
                    site.cluster,
                    site.sampler,
                    text=wanted.text,
                    sort=wanted.sort,
                    descending=wanted.descending,
                    first=wanted.first,
                    count=wanted.count,
                )
                return [
                    {
                        "group": row.group,
                        "group_href": f.link("/group", id=row.group),
                        "type": row.type,
                        "state": row.state,
                        "lag": f.count(row.lag),
                    }
                    for row in found.rows
                ], found.total

            holder = ui.row().classes("w-full")
            table = PagedTable(
                _COLUMNS,
                load,
                key="group",
                sort="lag",
                descending=True,
                text=request.query_params.get("q", ""),
            )
            table.filter.move(holder)
            soon(table.refresh)
            ui.timer(_LIVE_SECONDS, table.refresh, immediate=False)
