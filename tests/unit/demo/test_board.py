"""The board of results, from the records as the pipeline writes them."""

from __future__ import annotations

import json

import pytest

from penstock.demo.board import Board
from penstock.demo.topics import ALERTS, DEAD, DELAYS
from penstock.demo.view import Lines, Status, screen, summary_lines

HOUR = {"origin": "EWR", "hour": "2013-02-08T14:00:00.000Z", "flights": 20, "cancelled": 3,
        "mean_delay": 41.5, "worst_delay": 200, "wind_mph": 26.5, "visibility_miles": 0.25}  # fmt: skip
ALERT = {"id": 7, "flight": "UA1545", "origin": "EWR", "dest": "IAH", "scheduled": "2013-02-08T14:05:00.000Z",
         "cancelled": True}  # fmt: skip
STATUS = Status("running", "127.0.0.1:9092", 30.0, 3600.0, 1360332000, 120, 38.0, 37.0, 4, 115)


@pytest.fixture
def board() -> Board:
    board = Board()
    board.take(DELAYS, b"EWR", json.dumps(HOUR).encode(), None)
    board.take(ALERTS, b"UA1545", json.dumps(ALERT).encode(), None)
    board.take(
        DEAD, b"9", b'{"origin":"X\xff', [("reason", b"unknown airport XXX"), ("source", b"flights-0-3")]
    )
    return board


def test_each_record_becomes_a_result(board: Board) -> None:
    assert str(board.hours[0]) == (
        "EWR 02-08 14:00  20 flights, 3 cancelled, mean delay 42 min, worst 200 min, "
        "wind 26 mph, sees 0.25 mi"
    )
    assert str(board.newest_alerts[0]) == "UA1545 EWR-IAH 02-08 14:05 cancelled, no weather"
    assert str(board.newest_dead[0]) == 'flights-0-3: unknown airport XXX: {"origin":"X\\xff'
    assert board.outcome.windows == [("EWR", 1360332000, 20)]
    assert board.outcome.alerts == [7]
    assert board.outcome.dead == [(9, "unknown airport XXX")]
    assert dict(board.reasons) == {"unknown airport": 1}


def test_the_newest_are_first_and_all_are_counted(board: Board) -> None:
    for number in range(100):
        board.take(DELAYS, b"JFK", json.dumps({**HOUR, "flights": number}).encode(), None)
    assert [hour.flights for hour in list(board.hours)[:3]] == [99, 98, 97]
    assert len(board.outcome.windows) == 101


def test_a_record_of_another_topic_is_refused(board: Board) -> None:
    with pytest.raises(ValueError, match="orders"):
        board.take("orders", b"", b"", None)


@pytest.mark.parametrize("height", [10, 24, 60])
def test_the_screen_fits_any_terminal(board: Board, height: int) -> None:
    from rich.console import Console

    console = Console(width=80, height=height, record=True, file=open("/dev/null", "w"))
    console.print(screen(STATUS, board, height))
    text = console.export_text()
    assert len(text.splitlines()) == height
    assert "2013-02-08 14:00" in text


def test_lines_tell_each_result_and_count_what_is_too_much(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Lines(board)
    for _ in range(10):
        lines.result(board.newest_alerts[0])
    lines.result(board.hours[0])
    lines.status(STATUS)
    said = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("alert  UA1545") for line in said) == 3
    assert "alert  ... and 7 more" in said
    assert any(line.startswith("delays EWR") for line in said)
    assert said[-1].endswith("table 115 | windows 1 | alerts 1 | dead 1")


def test_the_summary_names_what_failed() -> None:
    from collections import Counter

    from penstock.demo.summary import Check, Outcome, counts

    lines = summary_lines(
        counts([], Outcome()),
        Counter({"not JSON": 2}),
        [Check("all is well"), Check("nothing is lost", "1 missing")],
    )
    assert "  ok   all is well" in lines
    assert "  FAIL nothing is lost: 1 missing" in lines
    assert any("not JSON: 2" in line for line in lines)
