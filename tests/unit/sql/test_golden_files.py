"""The golden files of SQL without a server: their form, that they can be read, and the page made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from penstock.sql.errors import BadSyntax
from penstock.sql.language import statements
from penstock.sql.language.parser import parse
from penstock.sql.language.statements import (
    ControlQuery,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    Query,
    SetVariable,
    Show,
    Statement,
)
from tests.sql import docs, golden

FILES = sorted(golden.DIRECTORY.glob("*.test"))
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sql").glob("*.sql"))


@pytest.mark.promise(
    "sql",
    "Every statement in the reference does what the page shows, and the page has every statement in all "
    "its variants",
)
def test_the_page_is_up_to_date() -> None:
    assert docs.PAGE.read_text() == docs.page(), "run: python -m tests.sql.docs"


def test_every_golden_file_is_on_the_page_once() -> None:
    shown = Counter(name for _, names in docs.SECTIONS for name in names)
    assert shown == Counter(path.stem for path in FILES)


def test_no_two_golden_files_or_examples_share_a_name() -> None:
    """They are run against one server, where a relation or topic of one would be seen by another."""
    names = {path: golden.names_made(golden.read(path)) for path in FILES}
    names |= {path: golden.names_in(path.read_text()) for path in EXAMPLES}
    made: dict[str, str] = {}
    for path, of_path in names.items():
        for name in of_path:
            assert made.setdefault(name, path.name) == path.name, f"{name} is in {made[name]} and {path.name}"


def all_statements() -> Iterator[Statement]:
    """Of all golden files, as far as they can be read; variables are those that the file has defined."""
    for path in FILES:
        variables: dict[str, str] = {}
        for step in golden.read(path).steps:
            if step.word != "sql":
                continue
            try:
                found = parse(step.text, variables)
            except BadSyntax:
                assert step.expected[0].startswith("BadSyntax"), f"{path.name}:{step.line}"
                continue
            for statement in found:
                if isinstance(statement, SetVariable) and statement.value is not None:
                    variables[statement.name] = statement.value
                yield statement


@pytest.mark.promise(
    "sql",
    "Every statement in the reference does what the page shows, and the page has every statement in all "
    "its variants",
)
def test_every_statement_and_each_of_its_kinds_is_in_a_golden_file() -> None:
    """A word that is added to the language needs a golden file, too."""
    seen = list(all_statements())
    kinds = {type(each) for each in seen}
    every = {
        each
        for each in vars(statements).values()
        if isinstance(each, type) and issubclass(each, Statement) and each is not Statement
    }
    assert kinds == every

    def words(statement: type, name: str) -> set[object]:
        return {getattr(each, name) for each in seen if isinstance(each, statement)}

    def choices(of: type, name: str) -> set[object]:
        return set(get_args(get_type_hints(of)[name]))

    assert words(Show, "what") == choices(Show, "what")
    assert words(ControlQuery, "action") == choices(ControlQuery, "action")
    assert words(Drop, "kind") == choices(Drop, "kind")
    assert words(CreateRelation, "kind") == choices(CreateRelation, "kind")
    for statement, name in (
        (Drop, "delete_topic"), (Drop, "if_exists"), (Describe, "extended"), (Describe, "function"),
        (CreateRelation, "or_replace"), (CreateRelation, "if_not_exists"),
    ):  # fmt: skip
        assert words(statement, name) == {True, False}, (statement, name)
    assert {each.query_id is None for each in seen if isinstance(each, Explain)} == {True, False}
    queries = [query for each in seen if isinstance(query := getattr(each, "query", None), Query)]
    assert {query.emit for query in queries} == {None, "changes", "final"}
    windows = [query.first.window for query in queries if query.first.window is not None]
    assert {window.kind for window in windows} == {"tumbling", "hopping", "session"}
    assert {window.grace is None for window in windows} == {True, False}
    assert any(query.withins for query in queries)
    assert any(query.partition_by for query in queries)
    assert any(query.union for query in queries)
    formats = {each.options.get("format") for each in seen if isinstance(each, CreateRelation)}
    assert formats >= {"json", "avro", "protobuf", "json_schema", "csv", "string", "bytes"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_can_be_read(path: Path) -> None:
    assert parse(path.read_text())


def test_expected_and_found_are_compared_as_the_form_says() -> None:
    assert golden.fits("a … c", "a b c") and not golden.fits("a … c", "a b d")
    assert golden.fits('{"a": 1, "b": 2}', '{"b":2,"a":1}') and not golden.fits('{"a": 1}', '{"a": 2}')
    assert golden.rows_fit([["1", "…"], ["1", "x"]], [["1", "x"], ["1", "y"]], ordered=False)
    assert not golden.rows_fit([["1"], ["2"]], [["2"], ["1"]], ordered=True)
    assert not golden.rows_fit([["1"], ["1"]], [["1"], ["2"]], ordered=False)
    assert not golden.rows_fit([["1"]], [["1"], ["1"]], ordered=False)
    assert not golden.rows_fit([], [["1"]], ordered=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sql\nSELECT 1\n", "begins with"),
        ("# Title\nProse.\n\nsql\nSELECT 1\n", "no `----`"),
    ],
)
def test_a_file_in_another_form_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.test"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"x\.test:\d+: .*{message}"):
        golden.read(path)
