"""The generator of Nexmark events: what the queries are checked with must itself be as it says."""

from __future__ import annotations

import json

import pytest

from examples.sql import nexmark


@pytest.fixture(scope="module")
def events() -> nexmark.Events:
    return nexmark.whole(50_000)


def test_persons_auctions_and_bids_are_1_3_and_46_of_50(events: nexmark.Events) -> None:
    assert [events.table(topic).num_rows for topic in nexmark.TOPICS] == [1000, 3000, 46_000]


def test_the_same_seed_gives_the_same_events_and_a_shorter_run_is_their_beginning(
    events: nexmark.Events,
) -> None:
    again, other = nexmark.whole(20_010), nexmark.whole(20_010, seed=18)
    for topic in nexmark.TOPICS:
        assert again.table(topic).equals(events.table(topic).slice(0, again.table(topic).num_rows))
    assert not other.bid.equals(again.bid)


def test_chunks_are_the_same_events_as_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    count = nexmark.CHUNK + 70
    pieces = [chunk.bid.num_rows for chunk in nexmark.events(count)]
    assert len(pieces) == 2 and sum(pieces) == nexmark.whole(count).bid.num_rows


def test_times_are_in_order_and_pace(events: nexmark.Events) -> None:
    for topic in nexmark.TOPICS:
        times = events.table(topic).column("date_time").to_pylist()
        assert times == sorted(times)
        assert times[0] >= nexmark.START_MS and times[-1] < nexmark.START_MS + 5000


@pytest.mark.promise("sql", "Nexmark's queries 0 to 8 give the same results as a batch computation in Python")
def test_bids_and_sellers_name_auctions_and_people_that_were_there(events: nexmark.Events) -> None:
    began = dict(zip(events.auction.column("id").to_pylist(), events.auction.column("date_time").to_pylist()))
    came = dict(zip(events.person.column("id").to_pylist(), events.person.column("date_time").to_pylist()))
    bids = events.bid.to_pylist()
    assert all(began[bid["auction"]] <= bid["date_time"] for bid in bids)
    assert all(came[bid["bidder"]] <= bid["date_time"] for bid in bids)
    assert all(came[each["seller"]] <= each["date_time"] for each in events.auction.to_pylist())


def test_some_auctions_bidders_and_sellers_are_hot(events: nexmark.Events) -> None:
    def hot_share(numbers: list[int], rest: int) -> float:
        return sum((number - nexmark.FIRST_ID) % nexmark.HOT_EVERY == rest for number in numbers) / len(
            numbers
        )

    assert 0.48 < hot_share(events.bid.column("auction").to_pylist(), 0) < 0.55
    assert 0.72 < hot_share(events.bid.column("bidder").to_pylist(), 1) < 0.80
    assert 0.72 < hot_share(events.auction.column("seller").to_pylist(), 0) < 0.80


def test_json_has_the_columns(events: nexmark.Events) -> None:
    for topic in nexmark.TOPICS:
        table = events.table(topic).slice(0, 500)
        assert list(map(json.loads, nexmark.json_values(table).to_pylist())) == table.to_pylist()
