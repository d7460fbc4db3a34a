"""A promise marker that docs/behaviour.md cannot show is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises import BadMarkerError, read_promises


def written(directory: Path, marker: str, function: str = "def test_it() -> None: ...") -> Path:
    file = directory / "test_written.py"
    file.write_text(f"import pytest\n\n\n{marker}\n{function}\n")
    return file


def test_make_test_runs_a_test_of_every_promise() -> None:
    assert [promise.text for promise in read_promises() if not promise.in_make_test] == []


def test_a_promise_with_long_tests_only_is_found(tmp_path: Path) -> None:
    marker = '@pytest.mark.promise("log", "A damaged index is rebuilt")'
    long = written(tmp_path, f"{marker}\n@pytest.mark.long")
    assert [promise.in_make_test for promise in read_promises([long])] == [False]
    both = written(
        tmp_path, marker, f"@pytest.mark.long\ndef test_one() -> None: ...\n\n\n{marker}\ndef test_2(): ..."
    )
    assert [promise.in_make_test for promise in read_promises([both])] == [True]


@pytest.mark.parametrize(
    ("decorator", "module", "in_make_test"),
    [
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.long)])", "", False),
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=[pytest.mark.long]), 2])", "", True),
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.slow)])", "", True),
        ("@pytest.mark.parametrize('n', NUMBERS)", "", True),
        ("", "pytestmark = [pytest.mark.timeout(9), pytest.mark.long]", False),
        ("", "pytestmark = pytest.mark.slow", True),
    ],
)
def test_parameters_and_files_may_be_long(
    tmp_path: Path, decorator: str, module: str, in_make_test: bool
) -> None:
    marker = f'{decorator}\n@pytest.mark.promise("log", "A damaged index is rebuilt")'
    file = written(tmp_path, f"{module}\n{marker}")
    assert [promise.in_make_test for promise in read_promises([file])] == [in_make_test]


def test_tests_with_the_same_sentence_prove_one_promise(tmp_path: Path) -> None:
    marker = '@pytest.mark.promise("log", "A damaged index is rebuilt")'
    first = "def test_one() -> None: ..."
    file = written(tmp_path, marker, f"{first}\n\n\n{marker}\nasync def test_two() -> None: ...")
    [promise] = read_promises([file])
    assert (promise.topic, promise.text) == ("log", "A damaged index is rebuilt")
    assert [name for _, name in promise.tests] == ["test_one", "test_two"]


@pytest.mark.promise(
    "docs", "This page is generated from the markers of the tests; an invalid marker is an error"
)
@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        ('@pytest.mark.promise("logs", "A damaged index is rebuilt")', "no topic 'logs'"),
        ('@pytest.mark.promise("log")', "takes a topic and a sentence"),
        (
            '@pytest.mark.promise("log", sentence="An index is rebuilt")',
            "takes a topic and a sentence",
        ),
        ('@pytest.mark.promise("log", PROMISE)', "two literal strings"),
        ('@pytest.mark.promise("log", "")', "one sentence"),
        ('@pytest.mark.promise("log", "A damaged index is rebuilt.")', "without a full stop"),
        ("@pytest.mark.promise", "above a test function"),
        ('pytestmark = pytest.mark.promise("log", "A damaged index is rebuilt")', "above a test function"),
    ],
)
def test_a_promise_that_the_page_cannot_show_is_an_error(tmp_path: Path, marker: str, reason: str) -> None:
    with pytest.raises(BadMarkerError, match=reason):
        read_promises([written(tmp_path, marker)])


def test_a_promise_above_a_helper_is_an_error(tmp_path: Path) -> None:
    marker = '@pytest.mark.promise("log", "A damaged index is rebuilt")'
    with pytest.raises(BadMarkerError, match="helper is not a test"):
        read_promises([written(tmp_path, marker, "def helper() -> None: ...")])
