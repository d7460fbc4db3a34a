"""`penstock pipeline apply`: to a project, to flows of it, or to flows of the project that one is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.pipelines.run.state import StateDirectory


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project whose run, this process, has two changes pending; it is the current directory."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "spark-pipeline.yml").write_text("name: shop\nstorage: storage\n")
    state = StateDirectory(tmp_path / "shop" / "storage" / "_penstock", "shop")
    state.acquire()
    pending = [{"flow": flow, "action": "rebuild", "reasons": []} for flow in ("hourly", "daily")]
    state.write_status({"pipeline": "shop", "state": "running", "flows": [], "pending": pending})
    monkeypatch.chdir(tmp_path / "shop")
    yield state
    state.release()


@pytest.mark.promise(
    "pipelines", "`penstock pipeline apply` accepts flows with and without the project's directory"
)
@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ((), []),
        (("hourly",), ["hourly"]),
        (("hourly", "daily"), ["hourly", "daily"]),
        ((".", "daily"), ["daily"]),
        (("../shop",), []),
        (("../shop", "daily"), ["daily"]),
    ],
)
def test_flows_are_applied_with_and_without_a_project(
    shop: StateDirectory, words: tuple[str, ...], taken: list[str]
):
    done = CliRunner().invoke(cli, ["pipeline", "apply", *words])
    assert done.exit_code == 0, done.output
    assert shop.take_apply() == (taken, False)


@pytest.mark.promise(
    "pipelines", "`penstock pipeline apply` accepts flows with and without the project's directory"
)
def test_a_flow_without_a_pending_change_is_named(shop: StateDirectory):
    done = CliRunner().invoke(cli, ["pipeline", "apply", "hourl"])
    assert done.exit_code != 0
    assert "No pending change for flow 'hourl'. Pending: hourly, daily" in done.output
    assert shop.take_apply() is None
