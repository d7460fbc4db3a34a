"""The example of examples/etl on real databases: what arrives is what the databases hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.connect import conftest as connect
from tests.connect.messaging import conftest as messaging
from tests.connect.mysql import conftest as mysql
from tests.connect.postgres import conftest as postgres

pytestmark = pytest.mark.timeout(600)
shared_postgres, database = connect.shared_postgres, postgres.database
binlog_mariadb = mysql.binlog_mariadb
redis_server = messaging.redis_server
RUN = Path(__file__).parents[2] / "examples" / "etl" / "run.py"


@pytest.mark.promise(
    "connect",
    "The ETL example: orders from PostgreSQL and customers from MariaDB go through topics and Spark "
    "(join, windows) to Delta, Redis and a database, without missing or duplicate rows",
)
def test_the_results_are_what_the_databases_hold(
    database: Any, binlog_mariadb: Any, redis_server: Any, tmp_path: Path
) -> None:
    crm = binlog_mariadb.connect()
    crm.cursor().execute("CREATE DATABASE etl_crm CHARACTER SET utf8mb4")
    try:
        done = subprocess.run(
            [
                sys.executable,
                str(RUN),
                "--shop",
                f"postgresql://penstock:secret@127.0.0.1:{database.server.port}/{database.name}",
                "--crm",
                f"mysql://root@127.0.0.1:{binlog_mariadb.port}/etl_crm",
                "--redis",
                f"redis://127.0.0.1:{redis_server.port}",
                "--data",
                str(tmp_path / "data"),
            ],
            capture_output=True,
            text=True,
            timeout=500,
        )
        print(done.stdout)
        logs = "".join(f"\n== {log}\n{log.read_text()[-3000:]}" for log in tmp_path.glob("data/*.log"))
        assert done.returncode == 0, done.stdout + done.stderr + logs
        assert done.stdout.count("  ok  ") == 5
        assert database.query("SELECT slot_name FROM pg_replication_slots") == []
    finally:
        crm.cursor().execute("DROP DATABASE etl_crm")
        crm.close()
