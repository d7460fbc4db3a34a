"""Python functions of SQL by what they do: their own code, and the modules that they use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.sql.catalog.catalog import Function
from penstock.sql.continuous.functions import changed, digests
from penstock.sql.language.statements import Column

NAME = "penstock_test_unit_rates"


@pytest.mark.promise(
    "sql",
    "A query does not continue with its state if a module that its Python function uses has changed: it "
    "fails, and the error says what to write",
)
@pytest.mark.parametrize(
    "body",
    [
        f"import {NAME}\n\ndef rated(n):\n    return n * {NAME}.RATE\n",
        f"from {NAME} import RATE\n\ndef rated(n):\n    return n * RATE\n",
        f"import {NAME}\nreturn n * {NAME}.RATE",
    ],
)
def test_a_function_is_another_when_its_module_is(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / f"{NAME}.py"
    source.write_text("RATE = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    functions = [Function("rated", (Column("n", "INT"),), "INT", body)]
    recorded = {"functions": [list(each) for each in digests(functions)]}
    try:
        sys.modules.pop(NAME, None)
        assert changed(functions, recorded) == []
        source.write_text("# the same\nRATE = 2\n")
        sys.modules.pop(NAME, None)
        assert changed(functions, recorded) == []
        source.write_text("RATE = 333\n")
        sys.modules.pop(NAME, None)
        assert changed(functions, recorded) == ["rated"]
    finally:
        sys.modules.pop(NAME, None)
    # Earlier versions recorded nothing of modules.
    assert changed(functions, None) == changed(functions, {"query": "1"}) == []
