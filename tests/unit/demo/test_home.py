"""The files of the demonstration."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.demo.topics import DemoConflict, Home, ReplaySettings


@pytest.mark.promise(
    "demo",
    "A data directory keeps the port that its flows read from; another port is rejected with an error "
    "that says what to do",
)
def test_a_data_directory_keeps_the_port_that_its_flows_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.port(0) == 0 and home.port(9092) == 9092
    home.directory.mkdir()
    home.keep_port(4711)
    assert home.port(0) == home.port(4711) == 4711
    with pytest.raises(DemoConflict, match="--port 4711"):
        home.port(9092)
    home.forget()
    assert home.port(9092) == 9092


def test_a_replay_goes_on_only_with_the_same_settings_and_partitions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    settings = ReplaySettings("2013-01-01", 7)
    assert not home.begin(settings)
    assert home.begin(settings)
    with pytest.raises(DemoConflict, match="with seed 7"):
        home.begin(ReplaySettings("2013-01-01", 8))
    (home.directory / "replay.json").write_text('{"start": "2013-01-01", "seed": 7}')
    with pytest.raises(DemoConflict, match="of an earlier version, with partitions by airport"):
        home.begin(settings)
