"""Cards that refresh: parts that did not change stay, and keep the keyboard focus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nicegui import ui


class Redrawn:
    """An area that is redrawn only if its data has changed."""

    def __init__(self, area: ui.element) -> None:
        self._area = area
        self._shown: object = None

    def show(self, what: object, draw: Callable[[], None]) -> None:
        """`what` is compared by value; `draw` creates the elements for it."""
        if what == self._shown:
            return
        self._shown = what
        self._area.clear()
        with self._area:
            draw()


@dataclass(frozen=True, slots=True)
class Row:
    text: str
    target: str
    detail: str = ""


class LinkList:
    """Links with a detail next to each; only the details change while the links are the same."""

    def __init__(self, title: str, nothing: str) -> None:
        with ui.element("div").classes("card"):
            ui.label(title).classes("font-bold")
            self._rows = Redrawn(ui.element("div").classes("w-full"))
        self._nothing = nothing
        self._details: list[ui.label] = []

    def show(self, rows: Sequence[Row]) -> None:
        self._rows.show([(row.text, row.target) for row in rows], lambda: self._draw(rows))
        for label, row in zip(self._details, rows, strict=True):
            label.text = row.detail

    def _draw(self, rows: Sequence[Row]) -> None:
        self._details = []
        for row in rows:
            with ui.row().classes("w-full no-wrap justify-between"):
                ui.link(row.text, row.target).classes("link ellipsis")
                self._details.append(ui.label().classes("muted no-wrap"))
        if not rows:
            with ui.row().classes("items-center gap-2"):
                ui.icon("check_circle").classes("ok")
                ui.label(self._nothing).classes("muted")


class Tiles:
    """Numbers with a name, some of which link to a page."""

    def __init__(self, tiles: Sequence[tuple[str, str]]) -> None:
        """Their names and link targets ("" for none)."""
        self._values: list[ui.link | ui.label] = []
        with ui.element("div").classes("tiles numbers"):
            for name, target in tiles:
                with ui.element("div").classes("card"):
                    ui.label(name).classes("muted")
                    value = ui.link("-", target) if target else ui.label("-")
                    self._values.append(value.classes("tile-value"))

    def show(self, values: Sequence[tuple[str, str]]) -> None:
        """A value and its look ("", ok, warn or bad) for each."""
        for element, (text, look) in zip(self._values, values, strict=True):
            element.text = text
            plain = "link" if isinstance(element, ui.link) else ""
            element.classes(replace=f"tile-value {look or plain}")
