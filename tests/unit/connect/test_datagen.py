"""Datagen: values of a record that fit together, and the same ones after a restart."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from penstock.connect.connectors.datagen import QUICKSTARTS, Datagen, DatagenTask
from penstock.connect.connectors.datagen_values import _PLACES, _PRODUCTS, KINDS
from penstock.connect.runtime.offsets import StoredOffsets


def values(count: int, start: int = 0, **config: str) -> list[Any]:
    settings = {"kafka.topic": "t", "task.number": "0", "task.count": "1", "rate": "1000000", **config}
    task = DatagenTask()
    key = '["made",{"task.id":0}]'
    task.start({**settings, "iterations": str(count)}, StoredOffsets("made", {key: {"count": start}}))
    found: list[Any] = []
    while len(found) < count - start:
        found += [record.value for record in task.poll()]
    return found


@pytest.mark.promise(
    "connect", "Datagen: the fields of one record describe the same person, place or product"
)
def test_fields_of_a_record_fit_together() -> None:
    places = {place[0]: place for place in _PLACES}
    products = {product[0]: product for product in _PRODUCTS}
    customers = values(300, quickstart="customers")
    for number, each in enumerate(customers):
        first, last = each["name"].lower().split(" ")
        assert each["id"] == number + 1 and each["email"].startswith(f"{first}.{last}")
        _, _, _, country, postcode, phone, streets = places[each["address"]["city"]]
        assert each["address"]["country"] == country
        for text, form in ((each["address"]["postcode"], postcode), (each["phone"], phone)):
            assert len(text) == len(form)
            assert all(a.isdigit() if b == "#" else a == b for a, b in zip(text, form, strict=True))
        assert each["address"]["street"].startswith(streets)
    assert len({each["email"] for each in customers}) > 200
    for each in values(300, quickstart="purchases"):
        _, category, low, high = products[each["product"]]
        assert each["category"] == category and low <= each["price"] <= high


def test_two_people_of_one_record_and_the_same_records_after_a_restart() -> None:
    def field(name: str, kind: str, **more: str) -> dict[str, Any]:
        return {"name": name, "type": {"type": "string", "arg.properties": {"kind": kind, **more}}}

    fields = [
        field("buyer", "last_name", of="a"),
        field("mail", "email", of="a"),
        field("seller", "email", of="b"),
    ]
    fields += [field("one", "uuid"), field("two", "uuid")]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    found = values(100, **{"schema.string": schema})
    assert all(each["buyer"].lower() in each["mail"] and each["one"] != each["two"] for each in found)
    assert sum(each["mail"] != each["seller"] for each in found) > 90
    assert values(100, 40, **{"schema.string": schema}) == found[40:]


def test_every_kind_is_of_its_type_and_others_are_refused() -> None:
    for kind in KINDS:
        right = "double" if kind == "price" else "string"
        for given in ("string", "double", "int"):
            schema = json.dumps({"type": "record", "name": "r", "fields": [
                {"name": "f", "type": {"type": given, "arg.properties": {"kind": kind}}}]})  # fmt: skip
            assert bool(Datagen.validate({"schema.string": schema})) is (given != right)
    unknown = json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "f", "type": {"type": "string", "arg.properties": {"kind": "iban"}}}]})  # fmt: skip
    (problem,) = Datagen.validate({"schema.string": unknown})["schema.string"]
    assert "no values of kind iban" in problem and "postcode" in problem


def test_schemas_without_kinds_make_what_they_made() -> None:
    chance = random.Random(0)
    expected = {"registertime": chance.randint(1487715775521, 1519273364600 - 1)}
    users = QUICKSTARTS["users"][1]["fields"]
    for each in users[1:]:
        expected[each["name"]] = chance.choice(each["type"]["arg.properties"]["options"])
    assert values(1, quickstart="users") == [expected]
