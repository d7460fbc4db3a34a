"""The pages of a console in this process, without a browser, of a cluster that does not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from nicegui import Client
from nicegui.testing import User, user_simulation

from penstock.console.pages import register
from penstock.console.settings import Settings
from penstock.console.site import Site

Scenario = Callable[[User], Awaitable[None]]
Visit = Callable[[Scenario], None]


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site.of(Settings({"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0), None)
    yield site
    site.sampler.close()


@pytest.fixture
def visit(site: Site) -> Visit:
    """Runs what a person does on the pages of `site`."""

    def run(scenario: Scenario) -> None:
        async def simulate() -> None:
            async with user_simulation() as user:
                register(site)
                try:
                    await scenario(user)
                finally:
                    Client.page_routes.clear()  # or the modules of the pages would be unloaded

        asyncio.run(simulate())

    return run
