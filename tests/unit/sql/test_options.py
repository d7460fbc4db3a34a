"""Options of WITH and properties of SET: what is taken, and what is said of what is not."""

from __future__ import annotations

import pytest

from penstock.sql.catalog.declare import Options
from penstock.sql.errors import Clash, Unknown
from penstock.sql.language.parser import parse
from penstock.sql.language.properties import PROPERTIES, check_property
from penstock.sql.language.statements import CreateRelation


def options(text: str) -> Options:
    (statement,) = parse(f"CREATE STREAM s (n INT) WITH ({text});")
    assert isinstance(statement, CreateRelation)
    return Options(statement)


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [("'30 days'", 30 * 86_400_000), ("'1 HOUR 30 MINUTES'", 5_400_000), ("'-1'", -1), ("5000", 5000)],
)
def test_retention_is_a_time_or_for_ever(given: str, milliseconds: int) -> None:
    assert options(f"retention = {given}").retention_ms == milliseconds


@pytest.mark.parametrize("given", ["'a while'", "'-2'", "'0 days'", "'3 months'", "'30 days or so'"])
def test_what_is_no_retention_is_told_at_its_place(given: str) -> None:
    with pytest.raises(Clash, match="retention=") as told:
        options(f"format = 'json', retention = {given}")
    assert told.value.place is not None and told.value.place.column > 30


@pytest.mark.promise(
    "sql", "Every documented property of SET is accepted; an unknown option or property gets a suggestion"
)
def test_an_unknown_option_names_the_one_that_is_near() -> None:
    with pytest.raises(Unknown, match="did you mean `timestamp`"):
        options("timestmp = 'n'")


@pytest.mark.promise(
    "sql", "Every documented property of SET is accepted; an unknown option or property gets a suggestion"
)
@pytest.mark.parametrize("name", [name for name in PROPERTIES if name != "auto.offset.reset"])
def test_every_property_that_is_documented_can_be_set(name: str) -> None:
    check_property(name, "1")


@pytest.mark.promise(
    "sql", "Every documented property of SET is accepted; an unknown option or property gets a suggestion"
)
def test_an_unknown_property_names_the_one_that_is_near() -> None:
    with pytest.raises(Unknown, match="did you mean `failOnDataLoss`"):
        check_property("failOnDataLos", "false")
