"""A Spark application on a secured cluster, as a process: reads a topic, writes another, and shows its plans.

secret_app.py CLIENT_CONFIG DIRECTORY: batch and streaming, with Spark's log at INFO, its event log and what
its UI serves written below DIRECTORY, to be searched for secrets. The source has the password itself, the
sink a reference to PLANTED_PASSWORD.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

from penstock.cli.options.properties import parse_properties
from penstock.spark import session


def main(config: str, directory: Path) -> None:
    options = {f"kafka.{name}": value for name, value in parse_properties(Path(config).read_text()).items()}
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        "spark.log.level": "INFO",
        # A busy machine takes its time to start a Python worker.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.maxMetadataStringLength": "10000",
        "spark.sql.debug.maxToStringFields": "1000",
    }
    (directory / "events").mkdir()
    spark = session("secrets", master="local[1]", conf=settings)
    batch = spark.read.format("penstock").options(**options).option("subscribe", "in").load()
    batch.explain("extended")
    print("rows", batch.count(), flush=True)
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("penstock")
        .options(**{**options, "kafka.sasl.password": "${env:PLANTED_PASSWORD}"})
        .option("topic", "out")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress, flush=True)
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    application = f"{url}/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = [f"{url}/environment/", f"{url}/SQL/", f"{url}/StreamingQuery/", f"{url}/jobs/"]
    pages += [f"{application}/environment", f"{application}/sql?details=true&planDescription=true"]
    pages += [f"{url}/SQL/execution/?id={number}" for number in range(3)]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for number, page in enumerate(pages):
        with opener.open(page, timeout=60) as answer:
            (directory / f"ui-{number}").write_bytes(answer.read())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
