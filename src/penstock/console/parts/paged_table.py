"""A table that the server filters, sorts and paginates, so that it is fast with thousands of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import events, ui

from penstock.console.parts.acting import sentence_of
from penstock.console.parts.keys import SEARCH

ROWS = (25, 50, 100, 200)
_NOTHING = "Nothing found."


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that the table requests."""

    text: str
    sort: str
    descending: bool
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    number: bool = False
    sortable: bool = True
    link: bool = False
    """The row has the target of the link in `NAME_href`."""
    status: bool = False
    button: str = ""
    """The icon of a button in the cell. `on_button` gets the column's name and the row."""


Load = Callable[[Wanted], Awaitable[tuple[list[dict[str, Any]], int]]]
"""The requested rows, and the total number on all pages."""

# Vue escapes the contents of {{ }} and of bound attributes.
LINK = '<q-td :props="props"><a :href="props.row[props.col.name + \'_href\']">{{ props.value }}</a></q-td>'
STATUS = """<q-td :props="props"><q-badge :color="({ok: 'positive', Stable: 'positive', RUNNING: 'positive',
  offline: 'negative', FAILED: 'negative', Dead: 'negative', Empty: 'grey', PAUSED: 'grey', STOPPED: 'grey',
  CompleteCommit: 'grey', CompleteAbort: 'grey', Ongoing: 'teal-8',
  allow: 'positive', deny: 'negative'
  })[props.value] || 'orange-8'">{{ props.value }}</q-badge></q-td>"""

# The text of the label is an expression of Vue: COLUMN and LABEL are names of this program, not of a cluster.
_BUTTON = """<q-td :props="props" auto-width><q-btn flat dense round size="sm" icon="ICON"
  :aria-label="'LABEL ' + props.key" @click.stop="$parent.$emit('act', ['COLUMN', props.key])" /></q-td>"""

NO_DATA = '<span class="q-pa-xs">{{ props.message }}</span>'  # without a warning sign: an empty list is none


class PagedTable:
    """`load` is called for each page that the user opens."""

    def __init__(
        self,
        columns: Sequence[Column],
        load: Load,
        *,
        key: str,
        sort: str,
        descending: bool = False,
        text: str = "",
        placeholder: str = "Filter by name",
        on_button: Callable[[str, dict[str, Any]], object] | None = None,
    ) -> None:
        self._load = load
        self._key = key
        self._on_button = on_button
        self._text = text
        self._total = 0
        self._pagination: dict[str, Any] = {
            "sortBy": sort,
            "descending": descending,
            "page": 1,
            "rowsPerPage": 50,
            "rowsNumber": 0,
        }
        self.filter = (
            ui.input(placeholder=placeholder, value=text, on_change=self._filtered)
            .props(f'outlined dense clearable debounce=300 aria-label="{placeholder}"')
            .classes(f"grow {SEARCH}")
        )
        self._table = ui.table(
            columns=[
                {
                    "name": each.name,
                    "label": "" if each.button else each.label,
                    "field": each.name,
                    "sortable": each.sortable and not each.button,
                    "align": "right" if each.number else "left",
                    "classes": "cell",
                }
                for each in columns
            ],
            rows=[],
            row_key=key,
            pagination=dict(self._pagination),
            on_pagination_change=self._keep_total,
        ).classes("w-full")
        self._table.props["no-data-label"] = "Loading…"
        self._table.props(f"flat :rows-per-page-options={list(ROWS)} binary-state-sort dense")
        self._table.add_slot("no-data", NO_DATA)
        for each in columns:
            if each.link:
                self._table.add_slot(f"body-cell-{each.name}", LINK)
            elif each.button:
                slot = _BUTTON.replace("ICON", each.button).replace("COLUMN", each.name)
                self._table.add_slot(f"body-cell-{each.name}", slot.replace("LABEL", each.label))
            elif each.status:
                self._table.add_slot(f"body-cell-{each.name}", STATUS)
        self._table.on("request", self._requested)
        self._table.on("act", self._pressed)

    def _pressed(self, event: events.GenericEventArguments) -> Any:
        column, key = event.args
        row = next((row for row in self._table.rows if row[self._key] == key), None)
        return self._on_button(column, row) if self._on_button is not None and row is not None else None

    async def _filtered(self, change: events.ValueChangeEventArguments[Any]) -> None:
        self._text = change.value or ""
        self._pagination["page"] = 1
        await self.refresh()

    def _keep_total(self) -> None:
        # A table reports its state when it is first shown, from before it had rows.
        if self._table.pagination.get("rowsNumber") != self._total:
            self._table.pagination = {**self._table.pagination, "rowsNumber": self._total}

    async def _requested(self, event: events.GenericEventArguments) -> None:
        self._pagination = event.args["pagination"]
        await self.refresh()

    async def refresh(self) -> None:
        state = self._pagination
        count = int(state.get("rowsPerPage") or ROWS[-1])
        wanted = Wanted(
            self._text,
            str(state.get("sortBy") or ""),
            bool(state.get("descending")),
            (max(1, int(state.get("page") or 1)) - 1) * count,
            count,
        )
        try:
            with self._table.client:  # the dialog that asked for it may be deleted meanwhile
                rows, total = await self._load(wanted)
            label = _NOTHING
        except Exception as error:  # noqa: BLE001 - shown instead of the rows
            label = sentence_of(error)
            rows, total = [], 0
        self._table.props["no-data-label"] = label
        self._total = total
        self._table.rows = rows
        self._table.pagination = {**state, "rowsNumber": total}
        self._table.update()
