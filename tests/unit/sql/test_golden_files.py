"""The golden files of SQL without a server: their form, that they can be read, and the page made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.sql.parser import parse
from tests.sql import docs, golden

FILES = sorted(golden.DIRECTORY.glob("*.test"))
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sql").glob("*.sql"))


def test_the_page_is_up_to_date() -> None:
    assert docs.PAGE.read_text() == docs.page(), "run: python -m tests.sql.docs"


def test_every_golden_file_is_on_the_page_once() -> None:
    shown = Counter(name for _, names in docs.SECTIONS for name in names)
    assert shown == Counter(path.stem for path in FILES)


def test_no_two_golden_files_share_a_name() -> None:
    """They are run against one server, where a relation or topic of one would be seen by another."""
    made: dict[str, str] = {}
    for path in FILES:
        for name in golden.names_made(golden.read(path)):
            assert made.setdefault(name, path.name) == path.name, f"{name} is in {made[name]} and {path.name}"


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
