"""A dead-letter topic: records that cannot be processed are set apart, with the reason, and the rest goes on.

`attempt` calls an ordinary Python function for each record and catches what it raises. `divert` sends what
failed to `orders.dead` as it was, with headers that say why, and where it came from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import start

from penstock.spark.streams import attempt, divert

SAMPLE = [
    ("orders", "ann", {"product": "tea", "pieces": 2}),
    ("orders", "bob", "two teas, please"),
    ("orders", "cas", {"product": "tea", "pieces": 0}),
    ("orders", "dee", {"product": "tea", "pieces": "many"}),
]


def parse(record: dict[str, Any]) -> dict[str, Any]:
    order = json.loads(record["value"])
    if order["pieces"] == 0:
        raise ValueError("an order of nothing")
    return {"product": order["product"], "pieces": order["pieces"]}


def orders_and_dead_letters(records: DataFrame) -> DataFrame:
    attempted = attempt(records, parse, "product string, pieces int")
    return divert(attempted, topic="orders.parsed", value=F.to_json("result"), dead="orders.dead")


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(orders_and_dead_letters(streams.read("orders", includeHeaders="true")))


if __name__ == "__main__":
    main()
