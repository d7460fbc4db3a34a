"""The dialog to produce one message: text, or JSON that is encoded with the registered schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from penstock.console.parts.acting import attempt, complain, read
from penstock.console.parts.frame import command_line
from penstock.console.reads.messages import PartFormat, encode_registered, produce, registered_format
from penstock.console.reads.topics import is_of_servers, parse_settings
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_TEXT, _SCHEMA = "text", "schema"
_FORMATS = {_TEXT: "Text", _SCHEMA: "Registered schema"}


def produce_dialog(
    site: Site, viewer: Viewer, topic: str, after: Callable[[], Awaitable[object]]
) -> ui.dialog:
    """`after` is called when the message has been written."""
    needed = Role.ADMIN if is_of_servers(topic) else Role.WRITE
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 700px"):
        ui.label(f"Produce to {topic}").classes("text-lg font-bold break-all")
        formats: dict[str, PartFormat | None] = {"key": None, "value": None}
        key = ui.input("Key (empty: null)").props("outlined dense autofocus").classes("w-full")
        if site.settings.registry is not None:
            _format_choice(site, topic, "key", formats, lambda: show_command())
        value = ui.textarea("Value").props("outlined dense autogrow").classes("w-full mono")
        if site.settings.registry is not None:
            _format_choice(site, topic, "value", formats, lambda: show_command())
        tombstone = ui.checkbox("Null value (a tombstone)")
        headers = ui.textarea("Headers, one NAME=VALUE per line").props("outlined dense").classes("w-full")
        partition = ui.number("Partition (empty: by the key)", min=0, precision=0)
        partition.props("outlined dense").classes("w-full")
        area = ui.element("div").classes("w-full")

        def show_command() -> None:
            words = ["produce", topic, "--format", "json"]
            for part, found in formats.items():
                words += [f"--{part}-format", found.kind] if found is not None else []
            area.clear()
            with area:
                command_line(site.command(*words))

        def data_of(part: str, text: str) -> bytes:
            if formats[part] is None:
                return text.encode()
            with site.registry() as client:
                return encode_registered(client, topic, part, text)

        async def send() -> None:
            where: list[tuple[int, int]] = []
            chosen = None if partition.value is None else int(partition.value)

            def write() -> None:
                where.append(
                    produce(
                        viewer.cluster,
                        topic,
                        key=data_of("key", key.value) if key.value else None,
                        value=None if tombstone.value else data_of("value", value.value or ""),
                        headers=parse_settings(headers.value or ""),
                        partition=chosen,
                    )
                )

            if await attempt(viewer, needed, f"write to '{topic}'", write):
                ui.notify(f"Written to partition {where[0][0]} at offset {where[0][1]}.", type="positive")
                dialog.close()
                await after()

        show_command()
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Send", on_click=send).props("no-caps")
    return dialog


def _format_choice(
    site: Site,
    topic: str,
    part: str,
    formats: dict[str, PartFormat | None],
    changed: Callable[[], object],
) -> None:
    """How the part is encoded; with a schema, its text stands below."""
    choice = ui.select(_FORMATS, value=_TEXT, label=f"Format of the {part}").props("outlined dense")
    choice.classes("w-full")
    area = ui.column().classes("w-full gap-1")

    def look() -> PartFormat:
        with site.registry() as client:
            return registered_format(client, topic, part)

    async def choose() -> None:
        formats[part] = None
        area.clear()
        if choice.value == _SCHEMA:
            try:
                found = await read(look)
            except Exception as error:  # noqa: BLE001 - shown to the person
                complain(error, f"encode the {part}")
                choice.value = _TEXT
                return
            formats[part] = found
            with area:
                ui.label(f"{found.kind}, schema {found.schema_id} of {found.subject}: write JSON").classes(
                    "muted break-all"
                )
                ui.label(found.text).classes("mono pre card w-full").style("max-height: 20vh; overflow: auto")
        changed()

    choice.on_value_change(choose)
