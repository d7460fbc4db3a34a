"""The messages of a topic: from a position, the newest, live, or found by a search; produce and export."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from nicegui import background_tasks, events, ui

from penstock.admin.reader import StopRequest
from penstock.admin.records.files import FORMATS
from penstock.console.pages.produce import produce_dialog
from penstock.console.pages.transfers import ImportDialog, ReplayDialog
from penstock.console.parts import format as f
from penstock.console.parts.acting import complain, read, soon
from penstock.console.parts.frame import command_line
from penstock.console.parts.keys import SEARCH
from penstock.console.reads.decoding import Part, Registered
from penstock.console.reads.matching import KINDS, matcher
from penstock.console.reads.messages import (
    MOST,
    Message,
    Progress,
    Query,
    export,
    read_messages,
    tail,
    within,
)
from penstock.console.reads.topics import is_of_servers
from penstock.console.searching import Result, Search
from penstock.console.site import Site
from penstock.console.threads import in_own_thread, in_pool
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_STARTS = {
    "newest": "Newest",
    "earliest": "From the beginning",
    "@-1h": "Last hour",
    "@-1d": "Last day",
}
_KINDS = {"text": "Text", "regex": "Regular expression", "json": "JSON field", "sql": "SQL condition"}
_COLUMNS = (
    ("partition", "Partition", True),
    ("offset", "Offset", True),
    ("time", "Time", False),
    ("key", "Key", False),
    ("value", "Value", False),
)
# A table row is not a button for a keyboard or a screen reader.
_OPEN = """<q-td :props="props" auto-width><q-btn flat dense round size="sm" icon="open_in_full"
  :aria-label="'Open message ' + props.value" @click.stop="$parent.$emit('open', props.value)" /></q-td>"""


def messages_tab(site: Site, viewer: Viewer, topic: str, query: Query) -> None:
    if is_of_servers(topic) and not viewer.may(Role.ADMIN):
        ui.label(
            f"Servers keep their state in '{topic}': its messages are shown to administrators, in a console "
            "that is not read-only."
        ).classes("muted")
        return
    MessagesTab(site, viewer, topic, query)


class MessagesTab:
    """The tab on one user's page. It reads one thing at a time; a new read, or leaving the page, ends the
    last one.
    """

    def __init__(self, site: Site, viewer: Viewer, topic: str, query: Query) -> None:
        self._site, self._viewer, self._topic = site, viewer, topic
        self._query = query
        self._shown: list[Message] = []
        self._search: Search | None = None
        self._tail: StopRequest | None = None
        self._reading: StopRequest | None = None
        self._turn = 0
        self._controls()
        with ui.row().classes("w-full items-center gap-2") as self._state:
            self._spinner = ui.spinner(size="20px")
            self._text = ui.label("").classes("muted")
            self._bar = ui.linear_progress(value=0, show_value=False).classes("grow")
            self._cancel = ui.button("Cancel", on_click=self._cancelled).props("flat dense no-caps")
        self._notes = ui.label("").classes("warn").props('role="status"')
        self._notes.set_visibility(False)
        self._table = ui.table(
            columns=[
                {"name": "open", "label": "", "field": "id", "align": "left"},
                *(
                    {
                        "name": name,
                        "label": label,
                        "field": name,
                        "align": "right" if number else "left",
                        "sortable": True,
                        "classes": "cell mono",
                    }
                    for name, label, number in _COLUMNS
                ),
            ],
            rows=[],
            row_key="id",
            pagination=50,
        ).classes("w-full")
        self._table.props('flat dense no-data-label="No messages."')
        self._table.on("row-click", lambda event: self._open(event.args[1]["id"]), [[], ["id"], None])
        self._table.add_slot("body-cell-open", _OPEN)
        self._table.on("open", lambda event: self._open(event.args))
        self._command = ui.element("div").classes("w-full")
        ui.context.client.on_delete(self._left)
        soon(self.load)

    # What is asked for

    def _controls(self) -> None:
        query = self._query
        with ui.row().classes("w-full items-end gap-2"):
            choices = dict(_STARTS)
            if query.start not in choices:
                choices[query.start] = query.start
            self._start = (
                ui.select(
                    choices, value=query.start, label="Start", with_input=True, new_value_mode="add-unique"
                )
                .classes("w-44")
                .tooltip(
                    "Also an offset, @2024-05-01T12:00, @-15m, or -100 for the last 100 of each partition"
                )
            )
            self._partition = ui.number("Partition", value=query.partition, min=0, precision=0).classes(
                "w-24"
            )
            self._limit = ui.number("Messages", value=query.limit, min=1, max=MOST, precision=0).classes(
                "w-24"
            )
            self._kind = ui.select(
                {kind: _KINDS[kind] for kind in KINDS}, value=query.kind, label="Search by"
            ).classes("w-44")
            self._text_box = (
                ui.input("Search", value=query.search).classes(f"grow {SEARCH}").props("clearable")
            ).style("flex-basis: 200px")
            for each in (self._start, self._partition, self._limit, self._kind, self._text_box):
                each.props("outlined dense")
            self._text_box.on("keydown.enter", self.load)
            ui.button("Read", icon="search", on_click=self.load).props("no-caps")
        with ui.row().classes("w-full items-center gap-2"):
            self._live = ui.switch("Live", on_change=self._switched).tooltip("Show new messages as they come")
            ui.space()
            if self._viewer.may(Role.WRITE):
                dialog = produce_dialog(self._site, self._viewer, self._topic, self.load)
                ui.button("Produce", icon="edit", on_click=dialog.open).props("no-caps outline")
                importing = ImportDialog(self._site, self._viewer, self._topic, self.load)
                ui.button("Import", icon="upload", on_click=importing.open).props("no-caps outline")
                replaying = ReplayDialog(self._site, self._viewer, self._topic, self.load)
                ui.button("Replay", icon="replay", on_click=lambda: replaying.open(self._asked())).props(
                    "no-caps outline"
                )
            with ui.dropdown_button("Export", icon="download", auto_close=True).props("no-caps outline"):
                for form, name in FORMATS.items():
                    ui.item(name, on_click=lambda form=form: self._export(form))

    def _asked(self) -> Query:
        partition = self._partition.value
        return replace(
            self._query,
            start=str(self._start.value or "newest").strip(),
            partition=None if partition is None else int(partition),
            limit=min(MOST, max(1, int(self._limit.value or 50))),
            search=self._text_box.value or "",
            kind=self._kind.value,
        )

    # Reading

    async def load(self) -> None:
        self.stop()
        self._live.value = False
        self._turn += 1
        turn = self._turn
        self._query = query = self._asked()
        ui.navigate.history.replace(f.link(f"/topics/{self._topic}", **query.as_link()))
        self._show_command(query)
        self._progress(Progress(0, 0, 0))
        self._note(())
        try:
            found = await (self._searched(query, turn) if query.search else self._read(query, turn))
        except Exception as error:  # noqa: BLE001 - shown to the person
            if turn == self._turn:
                self._state.set_visibility(False)
                complain(error, f"read '{self._topic}'")
            return
        if turn == self._turn and found is not None:
            self._state.set_visibility(False)
            self._show(found)

    async def _read(self, query: Query, turn: int) -> list[Message]:
        site = self._site
        self._reading = stop = StopRequest()
        loop = asyncio.get_running_loop()

        def show(progress: Progress) -> None:
            if turn == self._turn:
                self._progress(progress)
                self._note(progress.notes)

        def report(progress: Progress) -> None:
            loop.call_soon_threadsafe(show, replace(progress, found=()))

        def run() -> list[Message]:
            with ExitStack() as stack:
                described = None
                if site.settings.registry is not None:
                    described = Registered(stack.enter_context(site.registry()))
                return read_messages(
                    site.cluster, self._topic, query, describe=described, stop=stop, report=report
                )

        return await read(run)

    async def _searched(self, query: Query, turn: int) -> list[Message] | None:
        site = self._site
        if query.kind != "sql":  # a condition is only evaluated in the search's own process
            matcher(query.kind, query.search)  # report a wrong search before a process starts
        self._search = search = await read(
            Search,
            site.cluster.bootstrap,
            site.cluster.settings,
            site.settings.registry,
            self._topic,
            query,
            site.settings.timeout,
        )
        so_far: list[Message] = []
        while turn == self._turn:
            report = await read(search.next)
            if turn != self._turn:
                break
            if isinstance(report, Result):
                if report.failure is not None:
                    raise ValueError(report.failure)
                return report.found
            if report is not None:
                so_far = within([*so_far, *report.found], query.limit)
                self._progress(report)
                self._note(report.notes)
                if report.found:
                    self._show(so_far)
        await read(search.close)
        return None

    def _cancelled(self) -> None:
        """The messages found so far stay."""
        if self._reading is not None:
            self._reading.requested = True
        else:
            self.stop()

    def stop(self) -> None:
        """Stop reading; the messages shown stay."""
        self._turn += 1
        if self._search is not None:
            search, self._search = self._search, None
            background_tasks.create(in_pool(search.close))
        self._stop_readers()
        self._state.set_visibility(False)

    def _stop_readers(self) -> None:
        for each in (self._tail, self._reading):
            if each is not None:
                each.requested = True
        self._tail = self._reading = None

    def _left(self) -> None:
        self._turn += 1
        self._stop_readers()
        if self._search is not None:
            background_tasks.create(in_pool(self._search.close))

    # Live

    async def _switched(self, change: events.ValueChangeEventArguments[Any]) -> None:
        if not change.value:
            if self._tail is not None:
                self.stop()
            return
        self.stop()
        self._tail = stop = StopRequest()
        loop = asyncio.get_running_loop()
        self._show([])
        query = self._asked()

        async def show(messages: list[Message]) -> None:
            if not stop.requested:
                self._show(within([*messages, *self._shown], query.limit))

        def deliver(found: list[Message]) -> None:
            # A page that is slower than the topic slows the reader down, so that messages do not pile up.
            asyncio.run_coroutine_threadsafe(show(found), loop).result()

        def run() -> None:
            with ExitStack() as stack:
                described = None
                if self._site.settings.registry is not None:
                    described = Registered(stack.enter_context(self._site.registry()))
                tail(
                    self._site.cluster,
                    self._topic,
                    query.partition,
                    describe=described,
                    stop=stop,
                    show=deliver,
                )

        try:
            await in_own_thread(run)
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, f"follow '{self._topic}'")
            if self._tail is stop:
                self._tail, self._live.value = None, False

    # Showing

    def _progress(self, progress: Progress) -> None:
        self._state.set_visibility(True)
        self._bar.set_visibility(progress.total > 0)
        self._bar.value = round(progress.scanned / progress.total, 3) if progress.total else 0
        if progress.total:
            self._text.text = (
                f"{progress.scanned:,} of {progress.total:,} records searched, {progress.matched:,} found"
            )
        else:
            self._text.text = "Reading…"

    def _note(self, notes: tuple[str, ...]) -> None:
        self._notes.text = " ".join(notes)
        self._notes.set_visibility(bool(notes))

    def _show(self, messages: list[Message]) -> None:
        self._shown = messages
        self._table.rows = [
            {
                "id": f"{each.partition}-{each.offset}",
                "partition": each.partition,
                "offset": each.offset,
                "time": each.time,
                "key": each.key.short,
                "value": each.value.short,
            }
            for each in messages
        ]
        self._table.update()

    def _show_command(self, query: Query) -> None:
        self._command.clear()
        with self._command:
            command_line(self._site.command(*query.as_command(self._topic)))

    def _open(self, wanted: str) -> None:
        found = next((each for each in self._shown if f"{each.partition}-{each.offset}" == wanted), None)
        if found is not None:
            _detail(self._topic, found)

    async def _export(self, form: str) -> None:
        try:
            data = await read(export, self._shown, form)
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, "export the messages")
            return
        ui.download.content(data, f"{self._topic}.{form}")


def _detail(topic: str, message: Message) -> None:
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 900px"):
        with ui.row().classes("w-full items-center no-wrap"):
            ui.label(f"{topic}-{message.partition}, offset {message.offset}").classes(
                "text-lg font-bold break-all"
            )
            ui.space()
            ui.button(icon="close", on_click=dialog.close).props('flat dense round aria-label="Close"')
        ui.label(message.time).classes("muted")
        _part("Key", message.key)
        _part("Value", message.value)
        for name, part in message.headers:
            _part(f"Header {name}", part)
    dialog.on("hide", dialog.delete)
    dialog.open()


def _part(title: str, part: Part) -> None:
    with ui.element("div").classes("w-full"):
        with ui.row().classes("items-center gap-2"):
            ui.label(title).classes("font-bold break-all")
            ui.badge(part.kind if part.schema_id is None else f"{part.kind}, schema {part.schema_id}").props(
                "outline"
            )
            ui.label(f.size(part.size)).classes("muted")
        if part.note:
            ui.label(part.note).classes("warn")
        if part.kind != "null":
            ui.label(part.shown).classes("mono pre card w-full").style("max-height: 50vh; overflow: auto")
