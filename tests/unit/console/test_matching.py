"""Which messages a search finds."""

from __future__ import annotations

import pytest

from penstock.console.reads.decoding import decode
from penstock.console.reads.matching import BadSearch, Candidate, matcher


def finds(kind: str, text: str, value: bytes) -> bool:
    candidate = Candidate(lambda: decode(None), lambda: decode(value), [None, value, b"", None])
    return matcher(kind, text)(candidate)


@pytest.mark.promise("console", "A search finds text in any alphabet, in upper or lower case")
@pytest.mark.parametrize(
    ("kind", "text", "value", "found"),
    [
        ("text", "MÜNCHEN", "nach münchen", True),
        ("text", "münchen", "NACH MÜNCHEN", True),
        ("text", "афины", "АФИНЫ", True),
        ("text", "munchen", "münchen", False),
        ("regex", "gr.n", "grün", True),
        ("regex", "^gr.n$", "grün", True),
        ("regex", r"\bgr\wn\b", "grün", True),
        ("regex", "ü{2}", "üü", True),
        ("regex", "[^ü]", "ü", False),
        ("regex", r"gr\u00fcn", "grün", True),
        ("regex", r"gr\u0075n", "grun", True),
        ("regex", "(?i)GRÜN", "grün", True),
        ("regex", "Grun", "grun", False),
    ],
)
def test_letters_of_any_alphabet_are_found(kind: str, text: str, value: str, found: bool) -> None:
    assert finds(kind, text, value.encode()) == found


def test_bytes_that_are_no_text_are_searched_too() -> None:
    assert finds("text", "zürich", b"\xff\xfeZ\xc3\x9cRICH\xff")
    assert finds("regex", "late$", b"\xff late")


@pytest.mark.parametrize("text", ["(", "(?L)a", "a{99999999999}"])
def test_what_is_no_regular_expression_is_named(text: str) -> None:
    with pytest.raises(BadSearch, match="is not a regular expression"):
        matcher("regex", text)


@pytest.mark.parametrize(
    ("condition", "value", "found"),
    [
        ("$.a = 1", '{"a": true}', False),
        ("$.a = true", '{"a": 1}', False),
        ("$.a = true", '{"a": true}', True),
        ("$.a != 1", '{"a": true}', True),
        ("$.a = 1", '{"a": 1.0}', True),
        ("$.a = [1]", '{"a": [true]}', False),
        ('$.a = {"b": [1, 2]}', '{"a": {"b": [1, 2]}}', True),
        ('$.a = {"b": 0}', '{"a": {"b": false}}', False),
        ("$.a < 2", '{"a": true}', False),
        ("$.a = München", '{"a": "München"}', True),
        ("$.a contains MÜN", '{"a": "münchen"}', True),
    ],
)
def test_fields_compare_as_json_does(condition: str, value: str, found: bool) -> None:
    assert finds("json", condition, value.encode()) == found
