"""The form of log lines."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.web.log_output import JsonLines

LOG = """
import logging
from penstock.web.log_output import set_up_logging
set_up_logging("chatty")
logging.getLogger("chatty").info("not shown")
logging.getLogger("penstock.x").warning("disk %s\\nis full", "d1")
"""


@pytest.mark.promise("operations", "Every process logs one JSON object per line with `--log-format json`")
def test_the_form_of_lines_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def logged() -> str:
        return subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, check=True).stderr

    assert logged().endswith("WARNING penstock.x: disk d1\nis full\n")
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    line = json.loads(logged())
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "WARN", "logger": "penstock.x", "message": "disk d1\nis full"}


def test_a_traceback_is_in_the_same_line() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "cannot", (), sys.exc_info())
    text = JsonLines().format(record)
    assert "\n" not in text and json.loads(text)["error"].endswith("ValueError: bad")


def test_logging_is_set_up_in_one_place() -> None:
    root = Path(penstock.__file__).parent
    found = [str(each.relative_to(root)) for each in root.rglob("*.py") if "basicConfig(" in each.read_text()]
    assert found == ["web/log_output.py"]


@pytest.mark.parametrize("command", ["broker", "up", "registry", "console", "sql serve", "connect"])
def test_every_command_that_keeps_running_has_the_option(command: str) -> None:
    from click.testing import CliRunner

    from penstock.cli.main import cli

    assert "--log-format [text|json]" in CliRunner().invoke(cli, [*command.split(), "--help"]).output
