"""What every page has."""

from __future__ import annotations

import asyncio
import re

import pytest
from nicegui import Client
from nicegui.testing import User

from penstock.console.parts import frame
from penstock.console.site import Site
from penstock.web.access import Principal, Role
from tests.unit.console.conftest import Visit


class OneSession:
    """Stands for Sessions with one login."""

    def __init__(self) -> None:
        self.open = True
        self.asked = 0
        self.asked_often = asyncio.Event()

    def principal(self, headers: object) -> Principal | None:
        self.asked += 1
        if self.asked == 5:
            self.asked_often.set()
        return Principal("ann", Role.ADMIN) if self.open else None


@pytest.mark.promise("console", "An open page shows no new data after its session has ended")
@pytest.mark.parametrize("obeys", [True, False], ids=["a browser", "one that does not navigate"])
def test_an_open_page_ends_with_its_session(
    site: Site, visit: Visit, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    monkeypatch.setattr(frame, "CHECK_SECONDS", 0.05)
    sessions = OneSession()
    site.sessions = sessions  # type: ignore[assignment]

    async def scenario(user: User) -> None:
        went: list[str] = []
        if obeys:
            user.javascript_rules[re.compile(r"window\.location\.replace\('(.*)'\)")] = lambda match: (
                went.append(match[1])
            )
        client = await user.open("/topics")
        ended = asyncio.Event()
        client.on_delete(ended.set)
        await asyncio.wait_for(sessions.asked_often.wait(), 60)
        assert not ended.is_set()
        sessions.open = False
        await asyncio.wait_for(ended.wait(), 60)
        assert client.id not in Client.instances
        assert went == (["/login"] if obeys else [])

    visit(scenario)
