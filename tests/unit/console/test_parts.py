"""Parts that several pages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nicegui import Client, ElementFilter, ui
from nicegui.testing import User

from penstock.admin.cluster import PartitionInfo, TopicDescription
from penstock.console.pages import overview
from penstock.console.parts.curves import Curves
from penstock.console.parts.live import LinkList, Redrawn, Row, Tiles
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads.samples import Sample
from penstock.console.reads.streaming import StreamingQuery
from penstock.console.site import Site
from tests.unit.console.conftest import Visit


def on_a_page(visit: Visit, check: Callable[[Client], None]) -> None:
    async def scenario(user: User) -> None:
        @ui.page("/empty")
        def empty() -> None: ...

        client = await user.open("/empty")
        with client:
            check(client)

    visit(scenario)


@pytest.mark.promise(
    "console", "Parts of a page that did not change are not redrawn, so that the keyboard focus stays"
)
def test_links_stay_while_only_their_details_change(visit: Visit) -> None:
    def check(client: Client) -> None:
        links = LinkList("Slowest groups", "None.")

        def shown() -> list[tuple[int, str]]:
            return [(each.id, each.text) for each in ElementFilter(kind=ui.link)]

        links.show([Row("a", "/a", "10 behind"), Row("b", "/b", "5 behind")])
        before = shown()
        links.show([Row("a", "/a", "12 behind"), Row("b", "/b", "7 behind")])
        assert shown() == before and [text for _, text in before] == ["a", "b"]
        assert [each.text for each in ElementFilter(kind=ui.label, content="behind")] == [
            "12 behind",
            "7 behind",
        ]
        links.show([Row("b", "/b", "7 behind")])
        assert [text for _, text in shown()] == ["b"]

    on_a_page(visit, check)


def test_tiles_keep_their_links(visit: Visit) -> None:
    def check(client: Client) -> None:
        tiles = Tiles([("Offline partitions", "/topics?health=offline"), ("Records in", "")])
        (link,) = ElementFilter(kind=ui.link)
        for count, look in (("3", "bad"), ("0", "ok")):
            tiles.show([(count, look), ("5/s", "")])
            assert [(each.id, each.text) for each in ElementFilter(kind=ui.link)] == [(link.id, count)]
            assert look in link.classes

    on_a_page(visit, check)


def test_an_area_is_drawn_again_only_for_something_else(visit: Visit) -> None:
    def check(client: Client) -> None:
        drawn: list[str] = []
        area = Redrawn(ui.element("div"))
        for what in ("a", "a", "b", "b", "a"):
            area.show({"state": what}, lambda what=what: drawn.append(what))  # type: ignore[misc]
        assert drawn == ["a", "b", "a"]

    on_a_page(visit, check)


def test_the_time_axis_has_few_labels_of_one_form(visit: Visit) -> None:
    def check(client: Client) -> None:
        Curves("Records per second")
        (chart,) = ElementFilter(kind=ui.echart)
        axis = chart.options["xAxis"]
        assert axis["splitNumber"] <= 4 and axis["axisLabel"]["formatter"] == "{HH}:{mm}:{ss}"

    on_a_page(visit, check)


@pytest.mark.promise("console", "A list that cannot be read shows the reason instead of being empty")
def test_a_fault_of_a_list_is_shown(visit: Visit) -> None:
    works: list[bool] = []

    async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        if works:
            return [{"name": "a"}], 1
        raise RuntimeError("broken")

    async def scenario(user: User) -> None:
        with await user.open("/groups"):
            table = PagedTable([Column("name", "Name")], load, key="name", sort="name")
            await table.refresh()
            (shown,) = (each for each in ElementFilter(kind=ui.table) if each.columns[0]["label"] == "Name")
            assert shown.props["no-data-label"] == "The console failed to show this; its log has the reason."
            works.append(True)
            await table.refresh()
            assert shown.rows == [{"name": "a"}] and shown.props["no-data-label"] == "Nothing found."

    visit(scenario)


def test_the_overview_leads_to_what_needs_attention(site: Site) -> None:
    down = TopicDescription("orders", (PartitionInfo(0, -1, (1, 2), (1,)),))
    sample = Sample(1.0, 7, {1: "b:1"}, {"orders": down})
    assert overview._values(sample, None)[4:6] == [("1", "bad"), ("1", "warn")]
    targets = dict(overview._TILES)
    assert targets["Offline partitions"] == "/topics?internal=1&health=offline"
    assert targets["Under-replicated"] == "/topics?internal=1&health=under-replicated"
    queries = [StreamingQuery("shop", "sums", "failed", "no memory")]
    assert [each.text for each in overview._trouble(sample, ["sink"], queries)] == [
        "the cluster has no controller",
        "orders-0 is offline",
        "orders-0 is under-replicated",
        "connector sink failed",
        "query sums failed",
    ]
