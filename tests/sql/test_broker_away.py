"""A cluster that does not answer is seen within seconds, costs few lines of log, and holds up no stop."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import PenstockBroker
from tests.registry.conftest import RegistryProcess
from tests.sql.conftest import BROKER_SETTINGS
from tests.sql.serving import SqlClient, SqlServer

pytestmark = pytest.mark.timeout(400)

SEEN_SECONDS = 15.0
"""From the moment at which the cluster is away: 4 s until it counts as that, and a request that times out."""
STOP_SECONDS = 10.0
LINES_OF_ONE_AWAY = 12


def queries(sql: SqlClient) -> dict[str, dict[str, Any]]:
    answer = sql.ok("SHOW QUERIES")[-1]
    names = [name for name, _ in answer.columns or ()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in answer.rows}


def until(done: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
    return found


def away(sql: SqlClient) -> dict[str, Any] | None:
    query = queries(sql)["ctas_away_out_1"]
    return query if query["state"] == "DISCONNECTED" else None


@pytest.mark.promise(
    "sql",
    "If the cluster does not respond, SHOW QUERIES shows the reason, pull queries fail immediately, the "
    "log gets one line a minute, and the server can still be stopped",
)
@pytest.mark.parametrize(
    "way", [pytest.param("a broker that is gone", marks=pytest.mark.long), "a broker that hangs"]
)
def test_a_cluster_that_is_away_is_seen_and_does_not_hold_up_a_stop(
    sql_registry: RegistryProcess, tmp_path: Path, way: str
) -> None:
    with PenstockBroker(BROKER_SETTINGS) as broker:
        leave, back = (broker.kill, broker.start) if "gone" in way else (broker.pause, broker.resume)
        server = SqlServer(broker.bootstrap, sql_registry.url, tmp_path / "sql").wait()
        try:
            with server.client() as sql:
                sql.ok(
                    """
                    CREATE STREAM away_in (k STRING, n INT) WITH (format = 'json');
                    CREATE TABLE away_out AS SELECT k, SUM(n) AS n FROM away_in GROUP BY k;
                    INSERT INTO away_in VALUES ('a', 1);
                    """
                )
                rows = "SELECT k, n FROM away_out"
                until(lambda: sql.rows(rows) == [["a", 1]], 90)
                before = len(server.log.read_text().splitlines())
                leave()
                left = time.monotonic()
                query = until(lambda: away(sql), SEEN_SECONDS)
                seen = time.monotonic() - left
                assert query["lag"] is None
                assert f"the cluster at {broker.bootstrap} has not answered since" in query["error"]
                asked = time.monotonic()
                refused = sql.http.post("/sql", json={"sql": rows})
                assert refused.status_code == 503
                assert "has not answered since" in refused.text
                assert time.monotonic() - asked < 3, "a pull query waits for a cluster that is away"
                assert sql.rows("SHOW TABLES") == [["away_out", "away_out", "json", "ctas_away_out_1"]]
                for asks in ("SHOW TOPICS", "CREATE STREAM away_more AS SELECT k FROM away_in"):
                    assert "has not answered" in sql.http.post("/sql", json={"sql": asks}).text
                assert time.monotonic() - asked < 5, "statements wait for a cluster that is away"
                # Its group does not hear it: it leads no more, and says the same.
                until(lambda: not sql.http.get("/info").json()["leads"], 60)
                assert away(sql) is not None
                lines = server.log.read_text().splitlines()[before:]
                about = [line for line in lines if re.search("rdkafka|not answered since|rror", line)]
                assert len(about) <= LINES_OF_ONE_AWAY, "\n".join(lines)

                back()
                until(lambda: queries(sql)["ctas_away_out_1"]["state"] == "RUNNING", 120)
                sql.ok("INSERT INTO away_in VALUES ('a', 2)")
                until(lambda: sql.rows(rows) == [["a", 3]], 90)

                leave()
                until(lambda: away(sql), SEEN_SECONDS)
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(STOP_SECONDS + 20) == 0
            took = time.monotonic() - begun
            assert took < STOP_SECONDS, server.log.read_text()[-3000:]
            print(f"{way}: seen after {seen:.1f} s, stopped in {took:.1f} s, {len(about)} lines")
        finally:
            if "hangs" in way:
                broker.resume()
            server.kill()
