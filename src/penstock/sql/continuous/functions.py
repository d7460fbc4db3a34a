"""CREATE FUNCTION … LANGUAGE PYTHON: compiles the text of a function into one that Spark calls with columns.

The body is an expression (`x * 2`), statements with a `return`, or a module that defines a function of the
SQL function's name. It is compiled when the statement is executed, so that errors are reported then.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipelines.plans import python_code
from penstock.pipelines.plans.python_modules import Opaque
from penstock.sql.catalog.catalog import Function
from penstock.sql.continuous.sender_code import check_functions
from penstock.sql.errors import BadSyntax, Clash, Place, SqlError
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULE = "penstock_sql_function"


def compiled(function: Function, place: Callable[[int], Place] | None = None) -> Callable[..., Any]:
    """The Python function. `place` maps a line of the body (from 1) to a position in the statement."""
    body = textwrap.dedent(function.body.strip("\n")).rstrip()
    names = [each.name for each in function.parameters]
    for name in names:
        if not name.isidentifier():
            raise Clash(f"the parameter `{name}` is not a valid Python name")
    source, before = _source(function.name, names, body)
    try:
        code = compile(source, f"<function {function.name}>", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = max(1, (error.lineno or 1) - before)
        raise BadSyntax(f"the body of `{function.name}` is not valid Python: {error.msg} (line {line} of it)",
                        place(line) if place else None) from None  # fmt: skip
    space: dict[str, Any] = {"__name__": _MODULE}
    try:
        exec(code, space)  # users who may create functions may run code
    except Exception as error:
        raise SqlError(f"the body of `{function.name}` fails: {type(error).__name__}: {error}") from error
    found = space.get(function.name) or space.get(function.name.casefold())
    if not callable(found):
        raise BadSyntax(f"the body of `{function.name}` defines no function of that name")
    _check_parameters(function, found)
    return found  # type: ignore[no-any-return]


def _source(name: str, parameters: Iterable[str], body: str) -> tuple[str, int]:
    """A module that defines the function, and how many lines precede the body."""
    if re.search(rf"^(async\s+)?def\s+{re.escape(name)}\s*\(", body, re.MULTILINE | re.IGNORECASE):
        return body, 0
    head = f"def {name}({', '.join(parameters)}):\n"
    try:
        ast.parse(body, mode="eval")
        return f"{head}    return (\n{body}\n    )", 2
    except SyntaxError:
        return head + textwrap.indent(body, "    "), 1


def _check_parameters(function: Function, found: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(found)
    except ValueError:
        return  # a builtin without a signature
    try:
        signature.bind(*[None] * len(function.parameters))
    except TypeError:
        declared = ", ".join(parameter.name for parameter in function.parameters)
        raise Clash(
            f"`{function.name}` declares the parameters ({declared}),"
            f" but the Python function takes {signature}"
        ) from None


def digests(functions: Iterable[Function]) -> tuple[tuple[str, str], ...]:
    """For each function, its name, and a digest of its code and of all modules that it uses."""
    return tuple(sorted((each.name, _digest(each)) for each in functions))


def _digest(function: Function) -> str:
    try:
        return python_code.described(compiled(function)).digest
    except Opaque:
        return "unknown"


def changed(functions: Iterable[Function], recorded: Mapping[str, Any] | None) -> list[str]:
    """The functions that differ from a recorded print because a module has changed. None of them if an
    earlier version recorded the print, without modules.
    """
    then: dict[str, str] = dict((recorded or {}).get("functions", ()))
    return [name for name, digest in digests(functions) if then.get(name, digest) != digest] if then else []


def mentioned(text: str, functions: Mapping[str, Function]) -> tuple[Function, ...]:
    """The functions that a text calls."""
    called = {each.casefold() for each in re.findall(r"([A-Za-z_]\w*)`?\s*\(", text)}
    return tuple(each for name, each in functions.items() if name in called)


def register(session: SparkSession, functions: Iterable[Function], *, allowed: bool) -> None:
    """Registers them as SQL functions of a session; arguments are cast to the types of the parameters."""
    from pyspark.sql.functions import udf

    functions = tuple(functions)
    if not allowed:
        check_functions(functions)

    for function in functions:
        inner = f"__python_{function.name}"
        session.udf.register(inner, udf(compiled(function), function.returns, useArrow=True))
        # Wrapped in a SQL function, which knows the number and types of the parameters.
        parameters = ", ".join(f"{quoted(each.name)} {each.type}" for each in function.parameters)
        arguments = ", ".join(quoted(each.name) for each in function.parameters)
        session.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {quoted(function.name)} ({parameters}) "
            f"RETURNS {function.returns} RETURN {quoted(inner)}({arguments})"
        )
