"""The dialogs that move partitions and elect leaders: each shows what would happen before it does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, complain, read
from penstock.console.parts.frame import command_line
from penstock.console.reads import placement as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_SHOWN = 200
_COLUMNS = (
    ("partition", "Partition", False),
    ("old", "From", False),
    ("new", "To", False),
    ("bytes", "Copied", True),
)


class MoveDialogs:
    """`after` is called when something was started."""

    def __init__(self, site: Site, viewer: Viewer, after: Callable[[], Awaitable[object]]) -> None:
        self._site, self._viewer, self._after = site, viewer, after

    def rebalance(self) -> None:
        with _dialog("Rebalance") as dialog:
            ui.label("Brokers get the same number of replicas and leaders, with as few copies as possible.")
            topic = _box(ui.input("Only this topic (empty: all)"))

            def plan() -> reads.Plan:
                return reads.plan_rebalance(self._site.cluster, (topic.value or "").strip())

            def words() -> list[str]:
                name = (topic.value or "").strip()
                return ["cluster", "rebalance", *(["--topic", name] if name else [])]

            self._planned(dialog, [topic], plan, words, "rebalance the brokers")

    def vacate(self) -> None:
        with _dialog("Empty a broker") as dialog:
            ui.label(
                "All its replicas move to the others, so that it can be removed. It may already be down."
            )
            broker = _box(ui.number("Broker", min=0, precision=0))

            def number() -> int:
                if broker.value is None:
                    raise ValueError("Give the id of a broker.")
                return int(broker.value)

            self._planned(
                dialog,
                [broker],
                lambda: reads.plan_vacate(self._site.cluster, number()),
                lambda: ["cluster", "decommission", "BROKER" if broker.value is None else str(number())],
                "empty the broker",
                name=lambda: str(number()),
            )

    def move(self, topic: str, partition: int, replicas: str) -> None:
        with _dialog(f"Move {topic}-{partition}") as dialog:
            ui.label(f"Its replicas are on {replicas}. The first one becomes the preferred leader.")
            target = _box(ui.input("Brokers, such as 1,2,3", value=replicas.replace(" ", "")))

            def words() -> list[str]:
                brokers = (target.value or "").replace(" ", "")
                return ["cluster", "reassign", "--move", f"{topic}:{partition}={brokers}"]

            self._planned(
                dialog,
                [target],
                lambda: reads.plan_move(self._site.cluster, topic, partition, target.value or ""),
                words,
                f"move {topic}-{partition}",
            )

    def _planned(
        self,
        dialog: ui.dialog,
        fields: list[Any],
        plan: Callable[[], reads.Plan],
        words: Callable[[], list[str]],
        doing: str,
        name: Callable[[], str] | None = None,
    ) -> None:
        """Preview, throttle and start. `name` has to be typed before."""
        previewed: list[reads.Plan] = []
        throttle = _box(ui.number("Throttle on each broker, MiB a second (empty: none)", min=0.001))
        typed = _box(ui.input("Type the broker's id to go on")) if name is not None else None
        area = ui.column().classes("w-full gap-2").props('role="status"')

        def changed() -> None:
            previewed.clear()
            button.disable()
            area.clear()

        def rate() -> int | None:
            return int(float(throttle.value) * (1 << 20)) if throttle.value else None

        async def preview() -> None:
            changed()
            with area:
                ui.spinner(size="20px")
            try:
                found = await read(plan)
            except Exception as error:  # noqa: BLE001 - shown to the person
                area.clear()
                complain(error, doing)
                return
            area.clear()
            with area:
                _show_plan(found)
                more = [] if rate() is None else ["--throttle", str(rate())]
                command_line(self._site.command(*words(), *more))
            previewed.append(found)
            button.set_enabled(bool(found.moves))

        async def start() -> None:
            if typed is not None and name is not None and typed.value != name():
                ui.notify("The name does not match.", type="warning")
                return
            wanted, limit, cluster = previewed[0], rate(), self._viewer.cluster
            if await attempt(
                self._viewer,
                Role.ADMIN,
                f"{doing}: {len(wanted.moves)} partitions, {wanted.copies} copies",
                lambda: reads.start(cluster, wanted, limit),
                done="The moves have begun.",
            ):
                dialog.close()
                await self._after()

        for each in (*fields, throttle):
            each.on_value_change(changed)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Preview", on_click=preview).props("outline no-caps")
            button = ui.button("Move", on_click=start).props("no-caps")
        button.disable()

    async def elect(self) -> None:
        try:
            found = await read(reads.plan_election, self._site.cluster)
        except Exception as error:  # noqa: BLE001 - shown to the person
            complain(error, "look for leaders to elect")
            return
        with _dialog("Elect preferred leaders") as dialog:
            ui.label(
                "The first replica of each partition leads again, where it is in sync. Nothing is copied."
            )
            rows = [
                {
                    "partition": f"{one.topic}-{one.index}",
                    "old": "none" if one.leader < 0 else str(one.leader),
                    "new": str(one.replicas[0]),
                }
                for one in found.partitions[:_SHOWN]
            ]
            if rows:
                _table(rows, _COLUMNS[:-1], "partition")
                _more(len(found.partitions))
            else:
                ui.label("Every partition is led by its preferred replica.").classes("muted")
            command_line(self._site.command("cluster", "elect"))

            async def elect() -> None:
                cluster = self._viewer.cluster
                if await attempt(
                    self._viewer,
                    Role.ADMIN,
                    f"elect the preferred leaders of {len(found.partitions)} partitions",
                    lambda: reads.elect(cluster, found),
                    done="The leaders were elected.",
                ):
                    dialog.close()
                    await self._after()

            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
                ui.button("Elect", on_click=elect).props("no-caps").set_enabled(bool(rows))


def _show_plan(plan: reads.Plan) -> None:
    if not plan.moves:
        ui.label("Nothing would move: the replicas are in place.").classes("muted")
        return
    size = "" if plan.total is None else f", {f.size(plan.total)} to copy"
    ui.label(f"{len(plan.moves):,} partitions, {plan.copies:,} copies{size}.").classes("font-bold")
    rows = [
        {
            "partition": f"{move.topic}-{move.partition}",
            "old": ", ".join(map(str, move.old)),
            "new": ", ".join(map(str, move.new)),
            "bytes": f.size(plan.bytes_of(move)),
        }
        for move in plan.moves[:_SHOWN]
    ]
    _table(rows, _COLUMNS, "partition")
    _more(len(plan.moves))


def _more(count: int) -> None:
    if count > _SHOWN:
        ui.label(f"and {count - _SHOWN:,} more").classes("muted")


def _table(rows: list[dict[str, Any]], columns: tuple[tuple[str, str, bool], ...], key: str) -> None:
    shown = [
        {
            "name": name,
            "label": label,
            "field": name,
            "align": "right" if number else "left",
            "classes": "cell",
        }
        for name, label, number in columns
    ]
    ui.table(columns=shown, rows=rows, row_key=key, pagination=10).classes("w-full").props("flat dense")


def _box(field: Any) -> Any:
    return field.props("outlined dense").classes("w-full")


@contextmanager
def _dialog(title: str) -> Iterator[ui.dialog]:
    """A dialog with a title: opened at the end of the block, deleted when it is closed."""
    with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 760px"):
        ui.label(title).classes("text-lg font-bold break-all")
        yield dialog
    dialog.on("hide", dialog.delete)
    dialog.open()
