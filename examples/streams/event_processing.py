"""Event processing: a pattern over several events raises an alert ("complex event processing").

Three failed logins of an account within a minute, and then one that succeeds: someone may have guessed the
password. A state machine for each account (`transformWithState`) remembers the failures of the last minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from shared import as_json, fields, start

SAMPLE = [
    ("logins", account, {"ok": ok, "second": second})
    for account, ok, second in [
        ("ann", False, 0), ("ann", True, 5), ("eve", False, 10), ("eve", False, 20), ("eve", False, 30),
        ("bob", False, 0), ("bob", False, 60), ("bob", False, 100), ("eve", True, 40), ("bob", True, 101),
    ]
]  # fmt: skip


class Guessed(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.failures = handle.getListState("failures", "second bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        seconds = [second for (second,) in self.failures.get()] if self.failures.exists() else []
        for login in sorted(rows, key=lambda row: row.offset):
            seconds = [second for second in seconds if login.second - second < 60]
            if not login.ok:
                seconds.append(login.second)
            elif len(seconds) >= 3:
                yield Row(account=key[0], second=login.second, failures=len(seconds))
                seconds = []
        if seconds:
            self.failures.put([(second,) for second in seconds])
        else:
            self.failures.clear()

    def close(self) -> None:
        pass


def alerts(logins: DataFrame) -> DataFrame:
    account = logins.withColumn("account", F.col("key").cast("string"))
    found = account.select("account", "ok", "second", "offset").groupBy("account").transformWithState(
        Guessed(), "account string, second bigint, failures int", "Append", "None"
    )  # fmt: skip
    return found.select(F.col("account").alias("key"), as_json("account", "second", "failures"))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(alerts(fields(streams.read("logins"), "ok BOOLEAN, second BIGINT")), "alerts")


if __name__ == "__main__":
    main()
