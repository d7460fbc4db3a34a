"""Python functions are compared by what they do."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from penstock.pipelines.plans.python_code import digest


def function(text: str, **space: Any) -> Any:
    """The last function of a text, as a worker has it: pickled by value, and unpickled."""
    names: dict[str, Any] = {"__name__": "a_flow", **space}
    exec(compile(text, "flow.py", "exec"), names)
    return cloudpickle.loads(cloudpickle.dumps(names["f"]))


PLAIN = "def f(v):\n    return v + 1\n"


@pytest.mark.promise(
    "pipelines", "A query that has not changed keeps its state, whatever is random in its plan"
)
@pytest.mark.parametrize(
    "other",
    [
        pytest.param("\n\n# other\ndef f(v):\n    return v + 1  # plus one\n", id="lines and comments"),
        pytest.param("import os\ndef g(): return 2\ndef f(v): return v + 1", id="what it does not use"),
        pytest.param("def f(v: int) -> int:\n    return (v + 1)", id="annotations"),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_is_the_same(other: str):
    assert digest(function(PLAIN)) == digest(function(other))


@pytest.mark.parametrize(
    "one, other",
    [
        (PLAIN, "def f(v):\n    return v + 2\n"),
        (PLAIN, "def f(v):\n    return v - 1\n"),
        ("def f(v, by=1): return v + by", "def f(v, by=2): return v + by"),
        ("def g(v): return v\ndef f(v): return g(v)", "def g(v): return -v\ndef f(v): return g(v)"),
        ("by = 1\ndef f(v): return v + by", "by = 2\ndef f(v): return v + by"),
        ("def f(v): return {'a', 'b'}", "def f(v): return {'a', 'c'}"),
        ("def f(v): return [w for w in v if w > 1]", "def f(v): return [w for w in v if w > 2]"),
        ("def o(n):\n  return lambda v: v + n\nf = o(1)", "def o(n):\n  return lambda v: v + n\nf = o(2)"),
        ("class A:\n  def m(s): return 1\ndef f(v): return A().m()",
         "class A:\n  def m(s): return 2\ndef f(v): return A().m()"),
        ("def f(v): return math.floor(v)", "def f(v): return math.ceil(v)"),
        ("def f(v):\n  try:\n    return g(v)\n  except ValueError:\n    return 0",
         "def f(v):\n  try:\n    return g(v)\n  except TypeError:\n    return 0"),
    ],
)  # fmt: skip
def test_what_gives_something_else_is_not(one: str, other: str):
    import math

    assert digest(function(one, math=math)) == digest(function(one, math=math))
    assert digest(function(one, math=math)) != digest(function(other, math=math))


def test_a_module_beside_the_flow_counts_with_all_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(rate: str, helper: str = "def rate(): return RATE") -> str:
        (tmp_path / "penstock_rates.py").write_text(f"RATE = {rate}\n")
        (tmp_path / "penstock_helper.py").write_text(
            f"from penstock_rates import RATE\nimport penstock_rates\n{helper}"
        )
        for name in ("penstock_rates", "penstock_helper"):
            sys.modules.pop(name, None)
        import importlib

        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        module = importlib.import_module("penstock_helper")
        return digest(function("def f(v): return penstock_helper.rate() * v", penstock_helper=module))

    first = written("1")
    assert first == written("1")
    assert first != written("2")
    assert first != written("1", "def rate(): return RATE + 1")


def test_objects_and_wrapped_functions_count_with_what_they_hold():
    class Processor:
        def __init__(self, limit: int) -> None:
            self.limit = limit

        def handle(self, value: int) -> bool:
            return value > self.limit

    assert digest(Processor(1)) == digest(Processor(1)) != digest(Processor(2))
    add: Callable[..., Any] = function("def f(a, b): return a + b")
    assert digest(functools.partial(add, 1)) != digest(functools.partial(add, 2))
    assert digest(Processor(1).handle) != digest(Processor(2).handle)


def test_a_module_of_a_flow_that_is_called_like_one_of_the_library_is_not_taken_for_it():
    named = types.FunctionType((lambda v: v + 1).__code__, {"__name__": "json"}, "loads")
    other = types.FunctionType((lambda v: v + 2).__code__, {"__name__": "json"}, "loads")
    named.__module__ = other.__module__ = "json"
    assert digest(named) != digest(other)
