"""The dialogs of a topic that import a file and replay a range: a preview first, then progress and cancel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nicegui import background_tasks, events, ui

from penstock.admin.records import transfer
from penstock.admin.records.files import FORMATS, format_of
from penstock.admin.records.transfer import FilePreview, Offsets, Progress, Range
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read
from penstock.console.parts.frame import command_line
from penstock.console.reads.decoding import decode
from penstock.console.reads.messages import Query
from penstock.console.reads.topics import is_of_servers
from penstock.console.site import Site
from penstock.console.threads import in_pool
from penstock.console.transfers import Done, Import, Job, Replay, Transfer
from penstock.console.uploads import MOST_BYTES
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_SHOWN = 100


def needed(topic: str) -> Role:
    """The role that writes to a topic."""
    return Role.ADMIN if is_of_servers(topic) else Role.WRITE


class _Running:
    """A job under way: its progress, and a button that cancels it. Closing the dialog cancels it, too."""

    def __init__(self, site: Site, viewer: Viewer, after: Callable[[], Awaitable[object]]) -> None:
        self._site, self._viewer, self._after = site, viewer, after
        self._transfer: Transfer | None = None
        with ui.row().classes("w-full items-center gap-2") as self._row:
            self._bar = ui.linear_progress(value=0, show_value=False).classes("grow")
            self._text = ui.label("").classes("muted").props('role="status"')
            ui.button("Stop", on_click=self.cancel).props("flat dense no-caps color=negative")
        self._row.set_visibility(False)
        ui.context.client.on_delete(self.close)

    @property
    def busy(self) -> bool:
        return self._transfer is not None

    async def run(self, role: Role, doing: str, job: Job) -> bool:
        """Whether all of it was written."""
        site, cluster = self._site, self._viewer.cluster
        if self.busy:
            return False

        def start() -> None:
            self._transfer = Transfer(cluster.bootstrap, cluster.settings, site.settings.timeout, job)

        if not await attempt(self._viewer, role, doing, start) or self._transfer is None:
            return False
        running = self._transfer
        self._row.set_visibility(True)
        self._bar.value, self._text.text = 0, "Starting…"
        report: Progress | Done | None = None
        while not isinstance(report, Done):
            report = await read(running.next)
            if isinstance(report, Progress):
                self._bar.value = round(report.done / report.total, 3) if report.total else 0
                self._text.text = f"{report.done:,} of {report.total:,} read, {report.written:,} written"
        self._transfer = None
        self._row.set_visibility(False)
        if report.failure is not None:
            complain(ValueError(report.failure), doing)
        else:
            ui.notify(f"{report.written:,} records were written.", type="positive")
        await self._after()
        return report.failure is None

    def cancel(self) -> None:
        """What was written stays."""
        if self._transfer is not None:
            self._transfer.cancel()

    def close(self) -> None:
        if self._transfer is not None:
            background_tasks.create(in_pool(self._transfer.close))


def _title(text: str) -> None:
    ui.label(text).classes("text-lg font-bold break-all")


def _box(field: Any) -> Any:
    return field.props("outlined dense").classes("w-full")


class ImportDialog:
    def __init__(
        self, site: Site, viewer: Viewer, topic: str, after: Callable[[], Awaitable[object]]
    ) -> None:
        self._site, self._viewer, self._topic = site, viewer, topic
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._path, self._form = "", ""
        self._previewed: FilePreview | None = None
        with ui.dialog() as self._dialog, ui.card().classes("w-full").style("max-width: 760px"):
            _title(f"Import into {topic}")
            ui.label(
                f"JSON lines, CSV or Parquet, as exports are; up to {f.size(MOST_BYTES)}. "
                "Nothing is written before you have seen what is in the file."
            ).classes("muted")
            self._upload = (
                ui.upload(
                    label="Choose a file, or drop it here",
                    auto_upload=True,
                    max_file_size=MOST_BYTES,
                    max_files=1,
                    on_upload=self._uploaded,
                    on_rejected=lambda: ui.notify(
                        f"The file is larger than {f.size(MOST_BYTES)}: use penstock records import.",
                        type="negative",
                    ),
                )
                .props(f'accept="{",".join(f".{form}" for form in FORMATS)},.json,.ndjson" flat bordered')
                .classes("w-full")
            )
            self._area = ui.column().classes("w-full gap-2")
            self._keep = ui.checkbox("Keep the partitions of the file (otherwise: by the key)").props("dense")
            self._times = ui.checkbox("Keep the timestamps of the file", value=True).props("dense")
            self._running = _Running(site, viewer, after)
            with ui.row().classes("w-full justify-end"):
                ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
                self._button = ui.button("Import", on_click=self._import).props("no-caps")
        self._button.disable()
        self._dialog.on("hide", self._closed)
        ui.context.client.on_delete(self._forget)

    def open(self) -> None:
        self._dialog.open()

    def _closed(self) -> None:
        self._running.cancel()
        if not self._running.busy:
            self._forget()
            self._upload.reset()

    def _forget(self) -> None:
        """The file that was uploaded."""
        self._previewed = None
        self._button.disable()
        self._area.clear()
        if self._directory is not None:
            directory, self._directory = self._directory, None
            directory.cleanup()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        self._forget()
        with self._area:
            ui.spinner(size="20px")
        try:
            self._viewer.require(needed(self._topic), f"import into '{self._topic}'")
            self._form = format_of(event.file.name)
            self._directory = tempfile.TemporaryDirectory(prefix="penstock-import-")
            self._path = os.path.join(self._directory.name, "records")
            await event.file.save(Path(self._path))
            found = await read(transfer.preview_file, self._path, self._form)
        except Exception as error:  # noqa: BLE001 - shown to the person
            self._forget()
            complain(error, "read the file")
            return
        self._previewed = found
        self._area.clear()
        with self._area:
            self._show(event.file.name, found)
        self._button.set_enabled(found.bad is None and found.records > 0)

    def _show(self, name: str, found: FilePreview) -> None:
        named = f", for partitions {_listed(found.partitions)}" if found.partitions else ""
        ui.label(
            f"{found.records:,} records, {f.size(found.bytes)}{named}; {found.timed:,} have a timestamp."
        ).classes("font-bold")
        if found.bad is not None:
            ui.label(f"Nothing can be imported: {found.bad}.").classes("bad break-words").props(
                'role="alert"'
            )
        rows = [
            {"number": number, "key": decode(each.key).short, "value": decode(each.value).short}
            for number, each in enumerate(found.sample, 1)
        ]
        columns = [
            {"name": name, "label": label, "field": name, "align": "left", "classes": "cell mono"}
            for name, label in (("key", "Key"), ("value", "Value"))
        ]
        if rows:
            ui.table(columns=columns, rows=rows, row_key="number").classes("w-full").props("flat dense")
        command_line(self._site.command("records", "import", self._topic, name))

    async def _import(self) -> None:
        found = self._previewed
        if found is None:
            return
        keep = bool(self._keep.value)
        try:
            if keep:
                await read(transfer.check_partitions, self._site.cluster, self._topic, found.partitions)
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, "import the file")
            return
        self._button.disable()
        job = Import(self._topic, self._path, self._form, found.records, keep, bool(self._times.value))
        doing = f"import {found.records} records into '{self._topic}'"
        if await self._running.run(needed(self._topic), doing, job):
            self._dialog.close()
        self._button.set_enabled(self._previewed is not None)


class ReplayDialog:
    def __init__(
        self, site: Site, viewer: Viewer, topic: str, after: Callable[[], Awaitable[object]]
    ) -> None:
        self._site, self._viewer, self._topic = site, viewer, topic
        self._previewed: tuple[Range, Offsets, str] | None = None
        with ui.dialog() as self._dialog, ui.card().classes("w-full").style("max-width: 760px"):
            _title(f"Replay {topic}")
            ui.label(
                "Writes the records of a range to a topic again. Those of aborted transactions are left out."
            ).classes("muted")
            self._target = _box(ui.input("To topic", value=topic))
            with ui.row().classes("w-full no-wrap gap-2"):
                self._start = _box(ui.input("From", value="earliest"))
                self._until = _box(ui.input("Until (empty: the end)"))
            ui.label("earliest, an offset, @2024-05-01T12:00, @-15m, or -100 for the last 100").classes(
                "muted"
            )
            self._partition = _box(ui.number("Only this partition (empty: all)", min=0, precision=0))
            self._where = _box(ui.input("Only where this SQL condition is true (empty: all)"))
            self._keep = ui.checkbox("Keep the partitions (otherwise: by the key)").props("dense")
            self._times = ui.checkbox("Keep the timestamps", value=True).props("dense")
            self._area = ui.column().classes("w-full gap-2").props('role="status"')
            self._running = _Running(site, viewer, after)
            with ui.row().classes("w-full justify-end"):
                ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
                ui.button("Preview", on_click=self._preview).props("outline no-caps")
                self._button = ui.button("Replay", on_click=self._replay).props("no-caps")
        self._button.disable()
        for each in (self._target, self._start, self._until, self._partition, self._where, self._keep):
            each.on_value_change(self._changed)
        self._dialog.on("hide", self._running.cancel)

    def open(self, query: Query | None = None) -> None:
        """With the start, the partition and the SQL condition of a search."""
        if query is not None:
            self._start.value = "earliest" if query.start == "newest" else query.start
            self._partition.value = query.partition
            self._where.value = query.search if query.kind == "sql" else ""
        self._dialog.open()

    def _changed(self) -> None:
        self._previewed = None
        self._button.disable()
        self._area.clear()

    async def _preview(self) -> None:
        partition = self._partition.value
        wanted = Range(
            self._topic,
            (self._start.value or "earliest").strip(),
            (self._until.value or "").strip(),
            () if partition is None else (int(partition),),
            (self._where.value or "").strip(),
        )
        target = (self._target.value or "").strip()
        self._changed()
        try:
            offsets = await read(transfer.resolve, self._site.cluster, wanted)
            held = await read(self._site.cluster.topic, target)
            if self._keep.value:
                await read(transfer.check_partitions, self._site.cluster, target, offsets.starts)
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, "preview the replay")
            return
        rows = [
            {
                "partition": p,
                "from": f.count(start),
                "until": f.count(offsets.ends[p]),
                "offsets": f.count(offsets.ends[p] - start),
            }
            for p, start in offsets.starts.items()
            if offsets.ends[p] > start
        ]
        columns = [
            {"name": name, "label": name.title(), "field": name, "align": "right"}
            for name in ("partition", "from", "until", "offsets")
        ]
        with self._area:
            fitting = ", of which those that fit the condition are written" if wanted.where else ""
            ui.label(
                f"{offsets.total:,} offsets are read{fitting}. "
                f"{target} has {len(held.partitions):,} partitions."
            ).classes("font-bold break-words")
            if target == self._topic:
                ui.label("The records are written to the topic that they are read from.").classes("warn")
            if rows:
                ui.table(columns=columns, rows=rows[:_SHOWN], row_key="partition", pagination=5).classes(
                    "w-full"
                ).props("flat dense")
            words = ["records", "replay", self._topic, "--to", target, *wanted.as_options()]
            words += ["--keep-partitions"] if self._keep.value else []
            command_line(self._site.command(*words, *([] if self._times.value else ["--new-times"])))
        self._previewed = (wanted, offsets, target)
        self._button.set_enabled(offsets.total > 0)

    async def _replay(self) -> None:
        if self._previewed is None:
            return
        wanted, offsets, target = self._previewed
        self._button.disable()
        job = Replay(wanted, offsets, target, bool(self._keep.value), bool(self._times.value))
        doing = f"replay {offsets.total} offsets of '{self._topic}' into '{target}'"
        role = max(needed(target), needed(self._topic))
        if await self._running.run(role, doing, job):
            self._dialog.close()
        self._button.set_enabled(self._previewed is not None)


def _listed(numbers: tuple[int, ...]) -> str:
    more = "" if len(numbers) <= 10 else f" and {len(numbers) - 10} more"
    return ", ".join(map(str, numbers[:10])) + more
