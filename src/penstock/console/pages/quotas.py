"""Quotas of clients: list, set and remove."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.access.quotas import DEFAULT, KINDS, QUOTAS, Quota
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read, soon
from penstock.console.parts.dialogs import confirm_by_name
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads import access as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_COLUMNS = (
    Column("user", "User"),
    Column("client_id", "Client id"),
    Column("ip", "Address"),
    Column("key", "Quota"),
    Column("value", "Value", number=True),
)
_BUTTONS = (
    Column("change", "Change quota", button="edit"),
    Column("remove", "Remove quota", button="delete"),
)


def register(site: Site) -> None:
    @ui.page("/quotas")
    async def quotas(request: Request) -> None:
        with frame(site, request, "Quotas", site.command("quotas", "list"), section="/quotas") as viewer:
            QuotasPage(site, viewer, request.query_params.get("q", ""))


class QuotasPage:
    def __init__(self, site: Site, viewer: Viewer, text: str) -> None:
        self._site, self._viewer = site, viewer
        self._shown: dict[str, Quota] = {}
        ui.label(
            "What clients may use of each broker. A broker delays the answers of a client that uses more."
        ).classes("muted")
        with ui.row().classes("w-full items-center"):
            holder = ui.row().classes("grow")
            if viewer.may(Role.ADMIN):
                ui.button("Set quota", icon="add", on_click=lambda: self._edit(None)).props("no-caps")
        self._table = PagedTable(
            (*_COLUMNS, *(_BUTTONS if viewer.may(Role.ADMIN) else ())),
            self._load,
            key="id",
            sort="user",
            text=text,
            on_button=self._pressed,
        )
        self._table.filter.move(holder)
        soon(self._table.refresh)

    async def _load(self, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        ui.navigate.history.replace(f.link("/quotas", q=wanted.text))
        found, total = await read(
            reads.quotas,
            self._site.cluster,
            text=wanted.text,
            sort=wanted.sort,
            descending=wanted.descending,
            first=wanted.first,
            count=wanted.count,
        )
        self._shown = {str(number): quota for number, quota in enumerate(found)}
        return [
            {"id": id, **asdict(quota), "value": f"{quota.value:,.12g}"} for id, quota in self._shown.items()
        ], total

    def _pressed(self, column: str, row: dict[str, Any]) -> None:
        quota = self._shown[row["id"]]
        if column == "change":
            self._edit(quota)
            return
        dialog = confirm_by_name(
            "Remove the quota",
            f"{quota.key} of {_whom(quota.entity)} is not limited by this quota any more.",
            next(iter(quota.entity.values())),
            "Remove",
            partial(self._remove, quota),
        )
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _remove(self, quota: Quota) -> None:
        await self._alter(quota.entity, quota.key, None)

    async def _alter(self, entity: dict[str, str], key: str, value: float | None) -> bool:
        cluster = self._viewer.cluster
        doing = f"remove {key}" if value is None else f"set {key} to {value:.12g}"
        done = await attempt(
            self._viewer,
            Role.ADMIN,
            f"{doing} for {_whom(entity)}",
            lambda: reads.set_quota(cluster, entity, key, value),
            done="The quota was removed." if value is None else "The quota was set.",
        )
        if done:
            await self._table.refresh()
        return done

    def _edit(self, known: Quota | None) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-full"):
            ui.label("Set a quota").classes("text-lg font-bold")
            ui.label(f"Name a user, a client id, both, or an address; {DEFAULT} for all others.").classes(
                "muted"
            )
            given = known.entity if known is not None else {}
            names = {
                kind: ui.input(label, value=given.get(kind, ""))
                for kind, label in zip(KINDS, ("User", "Client id", "Address"), strict=True)
            }
            key = ui.select(list(QUOTAS), value=known.key if known else "producer_byte_rate", label="Quota")
            meaning = ui.label(QUOTAS.get(key.value, "")).classes("muted")
            value = ui.number("Value", value=known.value if known else None, min=0)
            for each in (*names.values(), key, value):
                each.props("outlined dense").classes("w-full")
            meaning.move(target_index=-1)
            area = ui.element("div").classes("w-full")

            def entity() -> dict[str, str]:
                return {kind: box.value.strip() for kind, box in names.items() if (box.value or "").strip()}

            def show_command() -> None:
                meaning.text = QUOTAS.get(key.value, "")
                words = ["quotas", "set"]
                for kind, name in entity().items():
                    words += [f"--{kind}", name]
                number = "VALUE" if value.value is None else f"{value.value:.12g}"
                area.clear()
                with area:
                    command_line(self._site.command(*words, f"{key.value}={number}"))

            async def save() -> None:
                if value.value is None:
                    complain(ValueError("Give a value."), "set the quota")
                    return
                if await self._alter(entity(), key.value, float(value.value)):
                    dialog.close()

            for each in (*names.values(), key, value):
                each.on_value_change(show_command)
            show_command()
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                ui.button("Set", on_click=save).props("no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()


def _whom(entity: dict[str, str]) -> str:
    return ", ".join(f"{kind} '{name}'" for kind, name in entity.items()) or "nobody"
