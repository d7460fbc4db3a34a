"""What the shell completes."""

import pytest

from penstock.sql.shell.completion import Known, candidates
from penstock.sql.shell.shell import ends, help_text

KNOWN = Known(
    relations={
        "orders": ("id", "region", "amount"),
        "page-views": ("user", "page"),
        "totals": ("region", "n"),
    },
    kinds={"orders": "stream", "page-views": "stream", "totals": "table"},
    topics=("orders", "raw"),
    queries=("ctas_totals_1",),
)


def completed(text):
    return [each.text for each in candidates(text, KNOWN)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SEL", "SELECT"),
        ("sel", "select"),
        ("SELECT 1; CRE", "CREATE"),
        ("SHOW Q", "QUERIES"),
        ("SELECT * FROM ord", "orders"),
        ("SELECT * FROM pag", "`page-views`"),
        ("SELECT * FROM `pag", "`page-views`"),
        ("SELECT * FROM r", "raw"),
        ("INSERT INTO tot", "totals"),
        ("DROP TABLE t", "totals"),
        ("DESCRIBE o", "orders"),
        ("TERMINATE ct", "ctas_totals_1"),
        ("PAUSE QUERY ct", "ctas_totals_1"),
        ("SELECT reg", "region"),
        ("SELECT id FROM orders WHERE am", "amount"),
        ("SELECT o.re FROM x;\nSELECT * FROM orders o WHERE o.re", "region"),
        ("SELECT * FROM orders WHERE orders.i", "id"),
        ("SELECT * FROM totals AS t WHERE t.", "n"),
        ("SELECT __of", "__offset"),
        ("SELECT id FROM orders EMIT CH", "CHANGES"),
    ],
)
def test_what_fits_is_among_the_candidates(text, wanted):
    assert wanted in completed(text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("SELECT * FROM totals WHERE ", "amount"),
        ("SELECT * FROM totals AS t WHERE t.", "amount"),
        ("SELECT * FROM ", "region"),
        ("INSERT INTO r", "raw"),
        ("SELECT unknown.", "region"),
        ("", "region"),
    ],
)
def test_what_does_not_fit_is_not(text, other):
    assert other not in completed(text)


def test_a_candidate_takes_the_place_of_the_word():
    (found,) = (each for each in candidates("SELECT * FROM `pa", KNOWN) if each.kind == "stream")
    assert found.start == -len("`pa")


def test_what_a_server_does_not_tell_is_no_harm():
    assert Known.of({"error": "x"}, {"error": "x"}) == Known()


@pytest.mark.parametrize(
    "text", ["exit", "help", "help select", "quit;", "SELECT 1;", "", "-- nothing", "clear"]
)
def test_enter_sends_what_is_complete(text):
    assert ends(text)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "SELECT ';", "CREATE FUNCTION f() AS $$ ;", "/* ;", "SELECT 1; SELECT 2"]
)
def test_enter_goes_on_with_what_is_not(text):
    assert not ends(text)


def test_help_has_every_statement_and_the_syntax_of_one():
    assert "CREATE STREAM AS" in help_text("") and "TERMINATE" in help_text("")
    assert "PAUSE [QUERY] query_id" in help_text("pause")
    assert help_text("nonsense").startswith("no statement NONSENSE")
