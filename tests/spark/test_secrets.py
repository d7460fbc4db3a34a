"""A password in Spark's options is in no plan, checkpoint, event log, log, page of the UI, or topic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.secure_up import SecureUp

pytestmark = pytest.mark.timeout(420)


@pytest.mark.promise(
    "access",
    "A password in Spark's options appears in no query plan, checkpoint, event log or page of Spark's UI",
)
def test_no_plan_checkpoint_or_page_of_spark_has_the_password(tmp_path: Path) -> None:
    up = SecureUp(tmp_path, "--no-registry")
    try:
        config = ("--client-config", up.ready["client_config"])
        for topic in ("in", "out"):
            up.penstock("topics", "create", topic, *config)
        up.penstock("produce", "in", *config, input="hello\n")
        password = up.client["sasl.password"]
        run = tmp_path / "run"
        run.mkdir()
        app = Path(__file__).with_name("secret_app.py")
        with (run / "app.log").open("wb") as log:
            done = subprocess.run(
                [sys.executable, str(app), up.ready["client_config"], str(run)],
                stdout=log, stderr=log, env={**os.environ, "PLANTED_PASSWORD": password}, timeout=360,
            )  # fmt: skip
        assert done.returncode == 0, (run / "app.log").read_text()[-3000:]
        assert up.penstock("consume", "out", *config) == "hello\n"
    finally:
        up.stop()
    files = [path for path in run.rglob("*") if path.is_file()]
    named = {path.relative_to(run).parts[0].partition("-")[0] for path in files}
    assert {"app.log", "checkpoint", "events", "ui"} <= named
    assert b"MicroBatchScan" in (run / "app.log").read_bytes()
    kept = [path for path in up.data.rglob("*") if path.is_file() and "secure" not in path.parts]
    found = [path for path in (*files, *kept, up.log) if password.encode() in path.read_bytes()]
    assert found == []
