"""The names in every `Message(...)` of the source are those of one struct of Kafka's messages.

The encoder refuses a misspelled field where a test encodes the message; this finds one on a path that no test
takes.
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import kio.schema
import pytest

from penstock.wire import schema

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def structs() -> set[frozenset[str]]:
    """The names of each struct, of all versions together."""
    found = set()
    for package in pkgutil.iter_modules(kio.schema.__path__):
        if not package.ispkg:
            continue
        for kind in ("request", "response", "data"):
            try:
                found.update(schema.field_names(package.name, kind).values())
            except ModuleNotFoundError:
                continue  # an API has no "data", and what is not an API has only that
    return found


def misspelled(source: str, structs: set[frozenset[str]]) -> Iterator[tuple[int, list[str]]]:
    """Line and names of each `Message(...)` that is not one struct's."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Message":
            names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            if not any(names <= struct for struct in structs):
                yield node.lineno, sorted(names)


@pytest.mark.promise(
    "protocol", "A misspelled field of a message is rejected instead of sent with its default"
)
def test_every_message_of_the_source_has_the_names_of_one_struct(structs: set[frozenset[str]]) -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {', '.join(names)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, names in misspelled(path.read_text(), structs)
    ]
    assert wrong == []


def test_a_misspelled_name_and_names_of_two_structs_are_found(structs: set[frozenset[str]]) -> None:
    text = "Message(error_code=0)\nMessage(\n    eror_code=27)\nMessage(api_keys=[], coordinators=[])\n"
    assert [line for line, _ in misspelled(text, structs)] == [2, 4]
