"""Users that log in to the cluster with a password (SCRAM): list, create, change the password, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.access.users import DEFAULT_MECHANISM, MECHANISMS
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
    Column("name", "User"),
    Column("mechanisms", "Mechanisms"),
    Column("iterations", "Iterations", number=True),
)
_BUTTONS = (
    Column("acls", "ACLs of", button="lock_open"),
    Column("password", "Change the password of", button="key"),
    Column("delete", "Delete", button="delete"),
)


def register(site: Site) -> None:
    @ui.page("/users")
    async def users(request: Request) -> None:
        with frame(site, request, "Users", site.command("users", "list"), section="/users") as viewer:
            UsersPage(site, viewer, request.query_params.get("q", ""))


class UsersPage:
    def __init__(self, site: Site, viewer: Viewer, text: str) -> None:
        self._site, self._viewer = site, viewer
        ui.label(
            "They log in to brokers with a password (SCRAM). On a cluster with ACLs, a new user may do "
            "nothing until an ACL allows it."
        ).classes("muted")
        with ui.row().classes("w-full items-center"):
            holder = ui.row().classes("grow")
            if viewer.may(Role.ADMIN):
                ui.button("Create user", icon="person_add", on_click=lambda: self._edit(None)).props(
                    "no-caps"
                )
        buttons = _BUTTONS if viewer.may(Role.ADMIN) else _BUTTONS[:1]
        self._table = PagedTable(
            (*_COLUMNS, *buttons), self._load, key="name", sort="name", text=text, on_button=self._pressed
        )
        self._table.filter.move(holder)
        soon(self._table.refresh)

    async def _load(self, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        ui.navigate.history.replace(f.link("/users", q=wanted.text))
        rows, total = await read(
            reads.users,
            self._site.cluster,
            text=wanted.text,
            sort=wanted.sort,
            descending=wanted.descending,
            first=wanted.first,
            count=wanted.count,
        )
        return [
            {"name": row.name, "mechanisms": ", ".join(row.mechanisms), "iterations": row.iterations}
            for row in rows
        ], total

    def _pressed(self, column: str, row: dict[str, Any]) -> None:
        name = row["name"]
        if column == "acls":
            ui.navigate.to(f.link("/acls", principal=f"User:{name}"))
        elif column == "password":
            self._edit(name, row["mechanisms"].split(", "))
        elif column == "delete":
            dialog = confirm_by_name(
                "Delete the user",
                "New logins fail at once; sessions that are open end when they have to log in again.",
                name,
                "Delete",
                partial(self._delete, name),
            )
            dialog.on("hide", dialog.delete)
            dialog.open()

    async def _delete(self, name: str) -> None:
        cluster = self._viewer.cluster
        if await attempt(
            self._viewer,
            Role.ADMIN,
            f"delete user '{name}'",
            lambda: reads.delete_user(cluster, name),
            done=f"User {name} was deleted.",
        ):
            await self._table.refresh()

    def _edit(self, known: str | None, mechanisms: list[str] | None = None) -> None:
        """The dialog for a new user, or for the password of a `known` one."""
        with ui.dialog() as dialog, ui.card().classes("w-full"):
            title = "Create a user" if known is None else f"Change the password of {known}"
            ui.label(title).classes("text-lg font-bold break-all")
            name = ui.input("Name", value=known or "").props("outlined dense autofocus").classes("w-full")
            name.set_visibility(known is None)
            password = ui.input("Password").props("outlined dense type=password autocomplete=new-password")
            again = ui.input("Password again").props("outlined dense type=password autocomplete=new-password")
            chosen = ui.select(
                list(MECHANISMS),
                value=[each for each in mechanisms or [DEFAULT_MECHANISM] if each in MECHANISMS],
                label="Mechanisms",
                multiple=True,
            ).props("outlined dense")
            for each in (password, again, chosen):
                each.classes("w-full")
            area = ui.element("div").classes("w-full")

            def show_command() -> None:
                words = ["users", "add", (name.value or "").strip() or "NAME"]
                for each in chosen.value or ():
                    words += ["--mechanism", each]
                area.clear()
                with area:
                    command_line(self._site.command(*words))

            async def save() -> None:
                wanted = (name.value or "").strip()
                if password.value != again.value:
                    complain(ValueError("The passwords differ."), "set the password")
                    return
                cluster, secret, logins = (
                    self._viewer.cluster,
                    password.value or "",
                    list(chosen.value or ()),
                )
                doing = f"create user '{wanted}'" if known is None else f"change the password of '{wanted}'"
                if await attempt(
                    self._viewer,
                    Role.ADMIN,
                    doing,
                    lambda: reads.set_password(cluster, wanted, secret, logins, new=known is None),
                    done=f"{wanted} can log in with the password.",
                ):
                    dialog.close()
                    await self._table.refresh()

            name.on_value_change(show_command)
            chosen.on_value_change(show_command)
            again.on("keydown.enter", save)
            show_command()
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                ui.button("Create" if known is None else "Save", on_click=save).props("no-caps")
        dialog.on("hide", dialog.delete)
        dialog.open()
