"""`penstock up` where the registry's libraries are not installed."""

from __future__ import annotations

import importlib.util

from penstock.cli.up import commands as up


def test_up_says_in_one_line_that_there_is_no_registry_and_goes_on(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert up._companions("127.0.0.1", 0, None, None) == []
    (line,) = capsys.readouterr().err.splitlines()
    assert "schema registry not started: it needs uvicorn" in line and "the extra `registry`" in line
