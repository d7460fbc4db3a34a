"""Statements that bring code: Python functions, and what Spark's SQL has to call Java or start a program.

Their senders can do anything that the server can, so a server accepts Python functions only with
`EngineSettings.python_functions`, and the others never. Checked when a statement arrives, and again when a
query starts, because another server may have accepted it. This is the early check, with a position in the
text; `spark_queries` decides what sessions and plans of Spark may contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.sql.catalog.catalog import Function
from penstock.sql.errors import NotAllowed, Place
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.statements import CreateFunction, Statement
from penstock.sqltext.tokens import Token

OPTION = "--allow-python-functions"
_INSTEAD = (
    f"code that a query needs is a Python function, on a server started with `penstock sql serve {OPTION}`"
)
_CALLS_JAVA = frozenset(("reflect", "java_method", "try_reflect"))


def check_statement(statement: Statement, *, python_functions: bool = False) -> None:
    """Raises NotAllowed, with its position, for a statement with code, unless it is an accepted function."""
    if isinstance(statement, CreateFunction):
        if python_functions:
            return
        place = Place.of(statement.text, statement.name_span[0])
        raise NotAllowed(_told("does not run Python functions"), place)
    check_text(statement.text, *statement.span)


def check_text(text: str, start: int = 0, end: int | None = None) -> None:
    tokens = tokenize(text, start, end)
    for place, token in enumerate(tokens):
        what = _brought(tokens, place)
        if what is not None:
            raise NotAllowed(
                f"{what} is not supported on any server; {_INSTEAD}", Place.of(text, token.start)
            )


def check_functions(functions: Iterable[Function]) -> None:
    for function in functions:
        raise NotAllowed(_told(f"does not run Python functions, and `{function.name}` is one"))


def _brought(tokens: Sequence[Token], place: int) -> str | None:
    """The construct that this word starts, if it runs code."""
    token = tokens[place]
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if after is None or not token.names:
        return None
    if after.is_symbol("("):
        if token.text.casefold() in _CALLS_JAVA:
            return f"`{token.text}`, which calls Java"
        if token.upper == "IDENTIFIER" and _is_called(tokens, place + 1):
            return "a function whose name is computed"
    if token.upper == "USING" and after.kind in ("string", "body", "variable"):
        return "TRANSFORM … USING, which starts a program"
    return None


def _is_called(tokens: Sequence[Token], opening: int) -> bool:
    """Whether the parenthesis that opens here is followed by another one: `IDENTIFIER('f')(1)`."""
    depth = 0
    for place in range(opening, len(tokens)):
        depth += tokens[place].is_symbol("(") - tokens[place].is_symbol(")")
        if depth == 0:
            return place + 1 < len(tokens) and tokens[place + 1].is_symbol("(")
    return False


def _told(what: str) -> str:
    return f"this server {what}: start it with `penstock sql serve {OPTION}` if all who reach it may run code"
