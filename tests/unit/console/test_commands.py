"""The commands that pages show to be copied."""

from __future__ import annotations

import shlex
from urllib.parse import quote

import pytest
from nicegui.testing import User

from penstock.console.reads.messages import Query
from penstock.console.site import Site
from tests.unit.console.conftest import Visit

PLANTED = "orders; rm -rf ~ #$(id)`id`'\""


@pytest.mark.promise(
    "console", "A name in a link remains a single argument in the command that a page offers for copying"
)
def test_a_link_plants_no_shell_command(site: Site) -> None:
    query = Query.of({"from": "@-1h; reboot", "partition": "3"})
    for words in (
        ("topics", "describe", PLANTED),
        ("groups", "describe", PLANTED),
        query.as_command(PLANTED),
    ):
        assert shlex.split(site.command(*words)) == ["penstock", *words, "--bootstrap", "127.0.0.1:1"]


@pytest.mark.parametrize("page", ["/topics/{}", "/group?id={}", "/subject?name={}", "/connector?name={}"])
def test_pages_quote_the_name_in_their_command(visit: Visit, page: str) -> None:
    async def scenario(user: User) -> None:
        await user.open(page.format(quote("x; reboot", safe="")))
        await user.should_see("'x; reboot'")

    visit(scenario)
