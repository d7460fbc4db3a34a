"""Schemas: the subjects of the registry; a subject with its versions, their differences, and registration."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

from nicegui import ui
from starlette.requests import Request

from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read, show_failure, soon
from penstock.console.parts.frame import frame
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads import schemas as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.registry.client import RegistryClient
from penstock.web.access import Role

T = TypeVar("T")


def register(site: Site) -> None:
    @ui.page("/schemas")
    async def schemas(request: Request) -> None:
        command = _command(site, "schemas", "list")
        with frame(site, request, "Schemas", command, section="/schemas") as viewer:

            async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
                found = await _ask(site, lambda client: reads.list_subjects(client, wanted.text))
                if wanted.descending:
                    found.reverse()
                shown = found[wanted.first : wanted.first + wanted.count]
                return [
                    {"subject": name, "subject_href": f.link("/subject", name=name)} for name in shown
                ], len(found)

            with ui.row().classes("w-full items-center"):
                holder = ui.row().classes("grow")
                if viewer.may(Role.WRITE):
                    dialog = _registration(site, viewer, "")
                    ui.button("Register schema", icon="add", on_click=dialog.open).props("no-caps")
            table = PagedTable(
                (Column("subject", "Subject", link=True),), load, key="subject", sort="subject"
            )
            table.filter.move(holder)
            soon(table.refresh)

    @ui.page("/subject")
    async def subject(request: Request, name: str = "") -> None:
        command = _command(site, "schemas", "show", name)
        with frame(site, request, name or "Subject", command, section="/schemas") as viewer:
            _subject(site, viewer, name)


def _command(site: Site, *words: str) -> str:
    where = site.settings.registry
    return shlex.join(("penstock", *words, *(("--registry", where.url) if where is not None else ())))


async def _ask(site: Site, question: Callable[[RegistryClient], T]) -> T:
    def run() -> T:
        with site.registry() as client:
            return question(client)

    return await read(run)


def _subject(site: Site, viewer: Viewer, name: str) -> None:
    with ui.row().classes("w-full items-center justify-between"):
        summary = ui.label("").classes("muted")
        if viewer.may(Role.WRITE):
            dialog = _registration(site, viewer, name)
            ui.button("Register a version", icon="add", on_click=dialog.open).props("no-caps outline")
    with ui.row().classes("w-full gap-2"):
        version = ui.select([], label="Version").props("outlined dense").classes("w-32")
        other = ui.select([], label="Compare with").props("outlined dense clearable").classes("w-40")
    area = ui.element("div").classes("w-full")

    async def show() -> None:
        if version.value is None:
            return
        try:
            found = await _ask(site, lambda client: reads.find_version(client, name, version.value))
            lines = None
            if other.value is not None and other.value != version.value:
                lines = await _ask(
                    site, lambda client: reads.difference(client, name, other.value, version.value)
                )
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, f"show '{name}'")
            return
        area.clear()
        with area:
            ui.label(f"{found.schema_type}, id {found.id}").classes("muted")
            if lines is None:
                ui.label(reads.text_of(found)).classes("mono pre card w-full")
            else:
                _difference(lines)

    async def fill() -> None:
        try:
            found = await _ask(site, lambda client: reads.find_subject(client, name))
        except Exception as error:  # noqa: BLE001 - shown on the page
            with area:
                show_failure(error)
            return
        summary.text = f"{len(found.versions)} versions, compatibility {found.level}"
        version.set_options(found.versions, value=found.versions[-1])
        other.set_options(found.versions, value=found.versions[-2] if len(found.versions) > 1 else None)
        version.on_value_change(show)
        other.on_value_change(show)
        await show()

    soon(fill)


def _difference(lines: list[str]) -> None:
    with ui.element("div").classes("card w-full"):
        if not lines:
            ui.label("The two versions have the same text.").classes("muted")
        for line in lines[2:]:
            look = " diff-add" if line.startswith("+") else " diff-del" if line.startswith("-") else ""
            ui.label(line).classes(f"mono pre{look}" + (" muted" if line.startswith("@@") else ""))


def _registration(site: Site, viewer: Viewer, subject: str) -> ui.dialog:
    """Check first: the register button is enabled if the registry would accept the schema."""
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 800px"):
        ui.label("Register a schema").classes("text-lg font-bold")
        name = ui.input("Subject", value=subject).props("outlined dense").classes("w-full")
        kind = ui.select(list(reads.TYPES), value="AVRO", label="Type").props("outlined dense")
        text = ui.textarea("Schema").props("outlined autogrow").classes("w-full mono")
        area = ui.column().classes("w-full gap-1")

        async def check() -> None:
            area.clear()
            save.disable()
            try:
                verdict = await _ask(
                    site,
                    lambda client: reads.check(
                        client, (name.value or "").strip(), kind.value, text.value or ""
                    ),
                )
            except Exception as error:  # noqa: BLE001 - shown to the person
                complain(error, "check the schema")
                return
            with area:
                if verdict.compatible:
                    ui.label("Compatible: it can be registered.").classes("ok")
                    save.enable()
                else:
                    ui.label(f"Incompatible with {verdict.against}:").classes("bad font-bold")
                    for reason in verdict.reasons:
                        ui.label(reason).classes("mono pre bad")

        async def register_it() -> None:
            chosen = (name.value or "").strip()

            def run() -> None:
                with site.registry() as client:
                    reads.register(client, chosen, kind.value, text.value or "")

            if await attempt(viewer, Role.WRITE, f"register a schema of '{chosen}'", run):
                dialog.close()
                ui.navigate.to(f.link("/subject", name=chosen))

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Check", on_click=check).props("outline no-caps")
            save = ui.button("Register", on_click=register_it).props("no-caps")
            save.disable()
        for each in (name, kind, text):
            each.on_value_change(save.disable)
    return dialog
