"""Topics in which servers keep their state: who sees and writes their messages in the console."""

from __future__ import annotations

import pytest
from nicegui import ElementFilter, ui
from nicegui.testing import User

from penstock.console.pages.messages import messages_tab
from penstock.console.pages.produce import produce_dialog
from penstock.console.reads.messages import Query
from penstock.console.reads.topics import is_of_servers
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Principal, Role
from tests.unit.console.conftest import Visit

SERVERS_ONLY = ["connect-configs", "_schemas", "__penstock_sql", "mm2-configs.a.internal"]


@pytest.mark.promise(
    "console",
    "Messages of topics that hold the state of servers can be read and written by administrators only",
)
def test_messages_of_servers_are_shown_to_administrators(visit: Visit, site: Site) -> None:
    async def scenario(user: User) -> None:
        @ui.page("/empty")
        def empty() -> None: ...

        def tables(role: Role, topic: str, read_only: bool = False) -> int:
            viewer = Viewer(Principal("ann", role), read_only, True)
            with ui.column() as area:
                messages_tab(site, viewer, topic, Query())
                found = len(list(ElementFilter(kind=ui.table).within(instance=area)))
            area.delete()
            return found

        with await user.open("/empty"):
            for topic in SERVERS_ONLY:
                assert [tables(role, topic) for role in (Role.READ, Role.WRITE, Role.ADMIN)] == [0, 0, 1]
                assert tables(Role.ADMIN, topic, read_only=True) == 0
            assert tables(Role.READ, "orders") == tables(Role.READ, "connect-orders") == 1

    visit(scenario)


@pytest.mark.promise(
    "console",
    "Messages of topics that hold the state of servers can be read and written by administrators only",
)
def test_messages_of_servers_are_written_by_administrators(visit: Visit, site: Site) -> None:
    async def scenario(user: User) -> None:
        async def nothing() -> None: ...

        @ui.page("/form")
        def form() -> None:
            viewer = Viewer(Principal("ann", Role.WRITE), False, True)
            produce_dialog(site, viewer, "connect-configs", nothing).open()

        await user.open("/form")
        user.find(kind=ui.button, content="Send").click()
        await user.should_see("needs the role admin")

    visit(scenario)


def test_names_of_servers_topics() -> None:
    assert all(map(is_of_servers, SERVERS_ONLY))
    assert not any(map(is_of_servers, ("orders", "connect-orders", "a_b")))
