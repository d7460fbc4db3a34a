"""Python functions are compared by what they do."""

from __future__ import annotations

import decimal
import enum
import functools
import importlib
import math
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from penstock.pipelines.plans.python_code import described


def digest(value: Any) -> str:
    return described(value).digest


def function(text: str, **space: Any) -> Any:
    """The last function of a text, as a worker has it: pickled by value, and unpickled."""
    names: dict[str, Any] = {"__name__": "a_flow", **space}
    exec(compile(text, "flow.py", "exec"), names)
    return cloudpickle.loads(cloudpickle.dumps(names["f"]))


PLAIN = "def f(v):\n    return v + 1\n"


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
@pytest.mark.parametrize(
    "other",
    [
        pytest.param("\n\n# other\ndef f(v):\n    return v + 1  # plus one\n", id="lines and comments"),
        pytest.param("import os\ndef g(): return 2\ndef f(v): return v + 1", id="what it does not use"),
        pytest.param("def f(v: int) -> int:\n    return (v + 1)", id="annotations"),
    ],
)
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
        (
            "class A:\n  def m(s): return 1\ndef f(v): return A().m()",
            "class A:\n  def m(s): return 2\ndef f(v): return A().m()",
        ),
        ("def f(v): return math.floor(v)", "def f(v): return math.ceil(v)"),
        ("def f(v): return v\nf.by = 1", "def f(v): return v\nf.by = 2"),
        (
            "class N(int): pass\nby = N(1)\ndef f(v): return v + by",
            "class N(int): pass\nby = N(2)\ndef f(v): return v + by",
        ),
        (
            "wrong = ValueError(1)\ndef f(v): return wrong.args",
            "wrong = ValueError(2)\ndef f(v): return wrong.args",
        ),
        (
            "class D(decimal.Decimal): pass\nby = D(1)\ndef f(v): return v * by",
            "class D(decimal.Decimal): pass\nby = D(2)\ndef f(v): return v * by",
        ),
        (
            "class L(list): pass\nby = L([1])\ndef f(v): return by",
            "class L(list): pass\nby = L([2])\ndef f(v): return by",
        ),
        (
            "class L(dict): pass\nby = L()\nby.a = 1\ndef f(v): return by",
            "class L(dict): pass\nby = L()\nby.a = 2\ndef f(v): return by",
        ),
        (
            "class S:\n  __slots__ = ('a',)\nby = S()\nby.a = 1\ndef f(v): return by.a",
            "class S:\n  __slots__ = ('a',)\nby = S()\nby.a = 2\ndef f(v): return by.a",
        ),
        ("get = {'a': 1}.get\ndef f(v): return get(v)", "get = {'a': 2}.get\ndef f(v): return get(v)"),
        (
            "is_a = re.compile('a')\ndef f(v): return is_a.match(v)",
            "is_a = re.compile('b')\ndef f(v): return is_a.match(v)",
        ),
        (
            "by = [lambda v: v + 1]\ndef f(v): return by[0](v)",
            "by = [lambda v: v + 2]\ndef f(v): return by[0](v)",
        ),
        ("class A:\n  by = 1\ndef f(v): return A.by", "class A:\n  by = 2\ndef f(v): return A.by"),
        (
            "class M(type):\n  def __len__(s): return 1\nclass A(metaclass=M): ...\ndef f(v): return len(A)",
            "class M(type):\n  def __len__(s): return 2\nclass A(metaclass=M): ...\ndef f(v): return len(A)",
        ),
        (
            "class C(enum.Enum):\n  A = 1\ndef f(v): return C.A.value",
            "class C(enum.Enum):\n  A = 2\ndef f(v): return C.A.value",
        ),
        (
            "by = types.MappingProxyType({'a': 1})\ndef f(v): return by",
            "by = types.MappingProxyType({'a': 2})\ndef f(v): return by",
        ),
        (
            "def w(g, n):\n  @functools.wraps(g)\n  def h(v): return n\n  return h\nf = w(lambda v: v, 1)",
            "def w(g, n):\n  @functools.wraps(g)\n  def h(v): return n\n  return h\nf = w(lambda v: v, 2)",
        ),
        (
            "add = functools.partial(int.__add__, 1)\ndef f(v): return add(v)",
            "add = functools.partial(int.__add__, 2)\ndef f(v): return add(v)",
        ),
        (
            "def f(v):\n  try:\n    return g(v)\n  except ValueError:\n    return 0",
            "def f(v):\n  try:\n    return g(v)\n  except TypeError:\n    return 0",
        ),
    ],
)
def test_what_gives_something_else_is_not(one: str, other: str):
    used = {each.__name__: each for each in (decimal, enum, functools, math, re, types)}
    assert described(function(one, **used)) == described(function(one, **used))
    assert digest(function(one, **used)) != digest(function(other, **used))
    assert not described(function(one, **used)).unknown


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


# Modules of a project


class Files:
    """Modules that a function finds on its path, and none of which stays imported."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            path = self._directory / name.replace("__in__", "/")
            path = path if path.suffix else path.with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for name in [each for each in sys.modules if each.startswith("penstock_t_")]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def imported(self, name: str) -> Any:
        return importlib.import_module(name)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = Files(tmp_path, monkeypatch)
    yield files
    files.write()


@pytest.mark.promise(
    "pipelines",
    "A Python function before a stateful operator is part of the query, with the modules that it uses or "
    "imports when it runs",
)
@pytest.mark.parametrize(
    "text",
    [
        "def f(v):\n  import penstock_t_rates\n  return v * penstock_t_rates.RATE",
        "def f(v):\n  from penstock_t_rates import RATE as by\n  return v * by",
        "def f(v):\n  from penstock_t_rates import RATE\n  return v * RATE",
        "def f(v):\n  return [g(w) for w in v]\ndef g(w):\n  import penstock_t_rates\n  return w",
        "def f(v):\n  def g():\n    import penstock_t_rates as r\n    return r.RATE\n  return g() * v",
        "def f(v):\n  import penstock_t_more\n  return v * penstock_t_more.penstock_t_rates.RATE",
        "def f(v):\n  from penstock_t_more import by\n  return by(v)",
        "def f(v):\n  import penstock_t_package.rates\n  return penstock_t_package.rates.RATE * v",
        "def f(v):\n  from penstock_t_package import rates\n  return rates.RATE * v",
        "def f(v):\n  from penstock_t_package import RATE\n  return RATE * v",
        "def f(v):\n  from .rates import RATE\n  return RATE * v",
        "def f(v):\n  from . import rates\n  return rates.RATE * v",
    ],
)
def test_what_a_function_imports_inside_itself_counts(files: Files, text: str):
    def written(rate: int) -> str:
        files.write(
            penstock_t_rates=f"RATE = {rate}\n",
            penstock_t_more="def by(v):\n  from penstock_t_rates import RATE\n  return v * RATE\n"
            "import penstock_t_rates\n",
            penstock_t_package__in____init__="from .rates import RATE\n",
            penstock_t_package__in__rates=f"RATE = {rate}\n",
        )
        found = described(function(text, __package__="penstock_t_package"))
        assert not found.unknown
        assert not [name for name in sys.modules if name.startswith("penstock_t_")]
        return found.digest

    assert written(1) == written(1) != written(2)


@pytest.mark.promise(
    "pipelines",
    "A Python function before a stateful operator is part of the query, with the modules that it uses or "
    "imports when it runs",
)
@pytest.mark.parametrize(
    "text",
    [
        "def f(v):\n  return importlib.import_module('penstock_t_rates').RATE * v",
        "def f(v):\n  return __import__('penstock_t_rates').RATE * v",
        "def f(v):\n  return eval('v * RATE')",
        "def f(v):\n  return globals()['RATE'] * v",
        "def f(v):\n  return sys.modules['penstock_t_rates'].RATE * v",
        "def f(v):\n  import penstock_t_no_such_module\n  return v",
        "def f(v):\n  import penstock_t_dynamic\n  return v",
    ],
)
def test_what_no_code_names_is_said_to_be_unknown(files: Files, text: str):
    files.write(penstock_t_dynamic="import importlib\nRATES = importlib.import_module('penstock_t_rates')\n")
    assert described(function(text, importlib=importlib, sys=sys)).unknown


@pytest.mark.promise(
    "pipelines",
    "A Python function before a stateful operator is part of the query, with the modules that it uses or "
    "imports when it runs",
)
def test_what_a_module_computes_when_it_is_imported_counts(files: Files, tmp_path: Path):
    where = str(tmp_path / "rates.json")

    def written(text: str, rate: int) -> str:
        (tmp_path / "rates.json").write_text(f'{{"rate": {rate}}}')
        files.write(
            penstock_t_rates=f"RATE = {rate}\n",
            penstock_t_helper=f"import functools, json\nfrom penstock_t_rates import RATE\n{text}",
        )
        module = files.imported("penstock_t_helper")
        found = described(function("def f(v): return helper.of(v)", helper=module))
        assert not found.unknown
        return found.digest

    for text in (
        "def of(v): return v * RATE",
        f"RATES = json.load(open({where!r}))\ndef of(v): return RATES['rate'] * v",
        f"def of(v, by=json.load(open({where!r}))['rate']): return by * v",
        f"def make(by): return lambda v: by * v\nof = make(json.load(open({where!r}))['rate'])",
        f"def times(a, b): return a * b\nof = functools.partial(times, json.load(open({where!r}))['rate'])",
        f"RATE = json.load(open({where!r}))['rate']\n@functools.cache\ndef of(v): return v * RATE",
        f"class Rates:\n  by = json.load(open({where!r}))['rate']\ndef of(v): return v * Rates.by",
    ):
        assert written(text, 1) == written(text, 1), text
        assert written(text, 1) != written(text, 2), text


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
def test_comments_and_handles_of_a_module_do_not_count(files: Files):
    def written(text: str) -> str:
        files.write(penstock_t_helper=text)
        module = files.imported("penstock_t_helper")
        return digest(function("def f(v): return helper.of(v)", helper=module))

    text = (
        "import logging, threading\nlog = logging.getLogger(__name__)\nlock = threading.Lock()\n"
        "def of(v): return v"
    )
    assert written(text) == written(f"# a comment\n{text}  # and another\n")


def test_a_file_of_a_project_that_is_called_like_a_module_of_the_library_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(rate: int) -> str:
        (tmp_path / "statistics.py").write_text(f"RATE = {rate}")
        return digest(function("def f(v):\n  import statistics\n  return v * statistics.RATE"))

    assert written(1) != written(2)
