"""ACLs: list by resource and principal, create with a preview of what they allow, delete."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.access.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    RESOURCES,
    Acl,
    AclFilter,
    check_principal,
)
from penstock.admin.words import plural
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
    Column("principal", "Principal"),
    Column("permission", "Permission", status=True),
    Column("operation", "Operation"),
    Column("resource", "Resource"),
    Column("name", "Name"),
    Column("pattern", "Pattern"),
    Column("host", "From"),
)
_DELETE = Column("delete", "Delete", button="delete")


def register(site: Site) -> None:
    @ui.page("/acls")
    async def acls(request: Request) -> None:
        asked = request.query_params
        with frame(site, request, "ACLs", site.command("acls", "list"), section="/acls") as viewer:
            page = AclsPage(site, viewer)
            page.draw(
                asked.get("q", ""),
                asked["resource"] if asked.get("resource") in RESOURCES else "",
                asked.get("name", ""),
                asked.get("principal", ""),
            )


class AclsPage:
    def __init__(self, site: Site, viewer: Viewer) -> None:
        self._site, self._viewer = site, viewer
        self._shown: dict[str, Acl] = {}

    def draw(self, text: str, resource: str, name: str, principal: str) -> None:
        with ui.row().classes("w-full items-center gap-2"):
            kinds = {"": "Any", **{each: each for each in RESOURCES}}
            self._resource = ui.select(kinds, value=resource, label="Resource").classes("w-36")
            self._name = (
                ui.input("That applies to", value=name)
                .classes("w-44")
                .tooltip("The name of a topic, group, …: its ACLs, with prefixes and wildcards")
            )
            self._principal = ui.input("Principal", value=principal).classes("w-44")
            for each in (self._resource, self._name, self._principal):
                each.props("outlined dense")
            for field in (self._name, self._principal):
                field.props("clearable debounce=300")
            holder = ui.row().classes("grow items-center").style("min-width: 160px")
            if self._viewer.may(Role.ADMIN):
                ui.button("Create ACL", icon="add", on_click=self._create).props("no-caps")
        buttons = (_DELETE,) if self._viewer.may(Role.ADMIN) else ()
        self._table = PagedTable(
            (*_COLUMNS, *buttons),
            self._load,
            key="id",
            sort="principal",
            text=text,
            placeholder="Filter",
            on_button=self._pressed,
        )
        self._table.filter.move(holder)
        for each in (self._resource, self._name, self._principal):
            each.on_value_change(self._table.refresh)
        soon(self._table.refresh)

    def _asked(self) -> AclFilter:
        name = (self._name.value or "").strip() or None
        return AclFilter(
            self._resource.value or None,
            name,
            (self._principal.value or "").strip() or None,
            matching=name is not None,
        )

    async def _load(self, wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        asked = self._asked()
        ui.navigate.history.replace(
            f.link(
                "/acls",
                q=wanted.text,
                resource=asked.resource or "",
                name=asked.name or "",
                principal=asked.principal or "",
            )
        )
        found, total = await read(
            reads.acls,
            self._site.cluster,
            asked,
            text=wanted.text,
            sort=wanted.sort,
            descending=wanted.descending,
            first=wanted.first,
            count=wanted.count,
        )
        self._shown = {str(number): acl for number, acl in enumerate(found)}
        return [{"id": id, **asdict(acl)} for id, acl in self._shown.items()], total

    def _pressed(self, column: str, row: dict[str, Any]) -> None:
        acl = Acl(**{name: row[name] for name in Acl.__dataclass_fields__})
        dialog = confirm_by_name(
            "Delete the ACL", acl.sentence, acl.principal, "Delete", partial(self._delete, acl)
        )
        dialog.on("hide", dialog.delete)
        dialog.open()

    async def _delete(self, acl: Acl) -> None:
        cluster = self._viewer.cluster
        if await attempt(
            self._viewer,
            Role.ADMIN,
            f"delete the ACL '{acl.sentence}'",
            lambda: reads.delete_acl(cluster, acl),
            done="The ACL was deleted.",
        ):
            await self._table.refresh()

    def _create(self) -> None:
        dialog = ui.dialog()
        with dialog, ui.card().classes("w-full").style("max-width: 700px"):
            Creation(self._site, self._viewer, dialog, self._table, self._principal.value or "")
        dialog.on("hide", dialog.delete)
        dialog.open()


class Creation:
    """The dialog for new ACLs: it shows what they allow before they exist."""

    def __init__(
        self, site: Site, viewer: Viewer, dialog: ui.dialog, table: PagedTable, principal: str
    ) -> None:
        self._site, self._viewer, self._dialog, self._table = site, viewer, dialog, table
        self._previewed: list[Acl] = []
        ui.label("Create an ACL").classes("text-lg font-bold")
        self._principal = ui.input("Principal, such as User:alice", value=principal).props("autofocus")
        with ui.row().classes("w-full no-wrap gap-2"):
            self._permission = ui.select(list(PERMISSIONS), value="allow", label="Permission").classes("w-36")
            self._operations = ui.select(list(OPERATIONS), value=["read"], label="Operations", multiple=True)
            self._operations.classes("grow").props("use-chips")
        with ui.row().classes("w-full no-wrap gap-2"):
            self._resource = ui.select(list(RESOURCES), value="topic", label="Resource").classes("w-36")
            self._name = ui.input("Name, * for all").classes("grow")
        with ui.row().classes("w-full no-wrap gap-2"):
            self._pattern = ui.select(list(PATTERNS), value="literal", label="Pattern").classes("w-36")
            self._host = ui.input("From address, * for all", value="*").classes("grow")
        self._principal.classes("w-full")
        fields = (
            self._principal,
            self._permission,
            self._operations,
            self._resource,
            self._name,
            self._pattern,
            self._host,
        )
        for each in fields:
            each.props("outlined dense")
            each.on_value_change(self._changed)
        self._area = ui.column().classes("w-full gap-1").props('role="status"')
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Preview", on_click=self._preview).props("outline no-caps")
            self._button = ui.button("Create", on_click=self._save).props("no-caps")
        self._button.disable()

    def _changed(self) -> None:
        """What is created is what was previewed."""
        self._previewed = []
        self._button.disable()
        self._area.clear()

    def _asked(self) -> list[Acl]:
        resource = self._resource.value
        principal = (self._principal.value or "").strip()
        check_principal(principal)
        name = CLUSTER_NAME if resource == "cluster" else (self._name.value or "").strip()
        if not name:
            raise ValueError(f"name the {resource}, or give * for all.")
        if not self._operations.value:
            raise ValueError("choose at least one operation.")
        pattern = "literal" if resource == "cluster" else self._pattern.value
        host = (self._host.value or "").strip() or "*"
        return [
            Acl(principal, self._permission.value, operation, resource, name, pattern, host)
            for operation in self._operations.value
        ]

    async def _preview(self) -> None:
        try:
            asked = self._asked()
            reach = await read(reads.reach, self._site.cluster, asked[0])
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, "preview the ACL")
            return
        self._area.clear()
        with self._area:
            for acl in asked:
                with ui.row().classes("items-center no-wrap gap-2"):
                    allows = acl.permission == "allow"
                    ui.icon("check_circle" if allows else "block").classes("ok" if allows else "bad")
                    ui.label(acl.sentence).classes("break-words")
            if reach is not None:
                named = ", ".join(reach.names) + (" …" if reach.count > len(reach.names) else "")
                what = plural(reach.count, f"existing {asked[0].resource}")
                ui.label(f"It applies to {what}{': ' if named else '.'}{named}").classes("muted break-words")
            command_line(self._site.command(*_words(asked)))
        self._previewed = asked
        self._button.enable()

    async def _save(self) -> None:
        acls, cluster = self._previewed, self._viewer.cluster
        sentences = " ".join(acl.sentence for acl in acls)
        if await attempt(
            self._viewer,
            Role.ADMIN,
            f"create ACLs: {sentences}",
            lambda: reads.create_acls(cluster, acls),
            done="The ACL was created." if len(acls) == 1 else f"{len(acls)} ACLs were created.",
        ):
            self._dialog.close()
            await self._table.refresh()


def _words(acls: list[Acl]) -> list[str]:
    """The arguments of the command that creates the same."""
    first = acls[0]
    words = ["acls", first.permission, first.principal, *(acl.operation for acl in acls)]
    words += ["--cluster"] if first.resource == "cluster" else [f"--{first.resource}", first.name]
    if first.pattern == "prefixed":
        words.append("--prefixed")
    return words if first.host == "*" else [*words, "--host", first.host]
