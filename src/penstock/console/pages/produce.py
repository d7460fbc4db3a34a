"""The dialog to produce one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from penstock.console.parts.acting import attempt
from penstock.console.reads.messages import produce
from penstock.console.reads.topics import is_of_servers, parse_settings
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role


def produce_dialog(
    site: Site, viewer: Viewer, topic: str, after: Callable[[], Awaitable[object]]
) -> ui.dialog:
    """`after` is called when the message has been written."""
    needed = Role.ADMIN if is_of_servers(topic) else Role.WRITE
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 700px"):
        ui.label(f"Produce to {topic}").classes("text-lg font-bold break-all")
        key = ui.input("Key (empty: null)").props("outlined dense autofocus").classes("w-full")
        value = ui.textarea("Value").props("outlined dense autogrow").classes("w-full mono")
        tombstone = ui.checkbox("Null value (a tombstone)")
        headers = ui.textarea("Headers, one NAME=VALUE per line").props("outlined dense").classes("w-full")
        partition = ui.number("Partition (empty: by the key)", min=0, precision=0)
        partition.props("outlined dense").classes("w-full")

        async def send() -> None:
            where: list[tuple[int, int]] = []
            chosen = None if partition.value is None else int(partition.value)

            def write() -> None:
                where.append(
                    produce(
                        site.cluster,
                        topic,
                        key=key.value or None,
                        value=None if tombstone.value else value.value or "",
                        headers=parse_settings(headers.value or ""),
                        partition=chosen,
                    )
                )

            if await attempt(viewer, needed, f"write to '{topic}'", write):
                ui.notify(f"Written to partition {where[0][0]} at offset {where[0][1]}.", type="positive")
                dialog.close()
                await after()

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Send", on_click=send).props("no-caps")
    return dialog
