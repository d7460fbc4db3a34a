"""Connectors on the pages: who may create one, which is to have the worker run code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nicegui import ElementFilter, ui
from nicegui.testing import User

from penstock.console.pages.connector_form import _field, connector_form
from penstock.console.reads.connectors import Field
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Principal, Role
from tests.unit.console.conftest import Visit


class Worker:
    """Notes what it is asked, and answers nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        self.asked.append(f"{method} {path}")
        return {"configs": []}

    def wrote(self, method: str) -> bool:
        return any(each.startswith(method) for each in self.asked)


@pytest.mark.promise("console", "Only administrators can create connectors, as on a Connect worker")
@pytest.mark.parametrize(("role", "asked"), [(Role.WRITE, False), (Role.ADMIN, True)])
def test_only_an_administrator_creates_a_connector(visit: Visit, site: Site, role: Role, asked: bool) -> None:
    worker = Worker()
    site.worker = worker  # type: ignore[assignment]

    async def scenario(user: User) -> None:
        @ui.page("/form")
        def form() -> None:
            connector_form(site, Viewer(Principal("ann", role), False, True)).open()

        client = await user.open("/form")
        with client:
            (plugin,) = ElementFilter(kind=ui.select)
            (name,) = (each for each in ElementFilter(kind=ui.input) if each.props["label"] == "Name")
            name.value = "reads"
            plugin.set_options(["FileStreamSource"], value="FileStreamSource")
        for button in ("Validate", "Create"):
            user.find(kind=ui.button, content=button).click()
        async with asyncio.timeout(60):
            # The last of what happens: refused and validated again, or done.
            while not (worker.wrote("POST") or "create connector" in " ".join(user.notify.messages)):
                await asyncio.sleep(0.001)

    visit(scenario)
    assert [worker.wrote("PUT"), worker.wrote("POST")] == [asked, asked]


def test_a_class_that_is_not_in_the_list_can_be_typed(visit: Visit) -> None:
    values: dict[str, str] = {}
    kind = Field("transforms.a.type", "Type", "CLASS", True, None, None, "", "", ("Cast$Value",), ())

    async def scenario(user: User) -> None:
        @ui.page("/form")
        def form() -> None:
            _field(kind, values)

        client = await user.open("/form")
        with client:
            (select,) = ElementFilter(kind=ui.select)
            assert select.props["new-value-mode"] == "add-unique"
            select.set_value("mine:change")

    visit(scenario)
    assert values == {"transforms.a.type": "mine:change"}
