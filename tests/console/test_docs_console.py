"""docs/console.md: its commands start consoles on one broker."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from penstock.testing import PenstockBroker
from tests.doc_blocks import commands
from tests.doc_shell import Shell

FREE = "--port 0 --ready-file {}"


@pytest.mark.promise("docs", "The commands of console.md start consoles as printed")
@pytest.mark.timeout(300)
def test_the_commands_of_the_page_run(broker: PenstockBroker, tmp_path: Path) -> None:
    lines = commands("docs/console.md")
    consoles = [line for line in lines if line.startswith("penstock console")]
    with_logins = consoles[-1]
    records = [line for line in lines if line.startswith(("penstock consume", "penstock records"))]
    (users,) = (line for line in lines if line not in (*consoles, *records))
    # Reached from anywhere, on the page: here from this machine only.
    shell = Shell(tmp_path, instead={"kafka-1:9092": broker.bootstrap, "0.0.0.0": "127.0.0.1"})
    shell.run("penstock certs create certs --host 127.0.0.1")
    shell.run("cp certs/server.pem cert.pem; cp certs/server.pem key.pem; chmod 600 key.pem")
    shell.run(users)
    broker.create_topic("orders", partitions=4)
    broker.create_topic("orders-again")
    order = b'{"customer": {"city": "Berlin"}}'
    broker.produce("orders", [{"key": b"k", "value": order, "headers": [("error", b"none")]}], partition=3)
    shell.run("export PENSTOCK_BOOTSTRAP=" + broker.bootstrap + "; " + "; ".join(records))
    for number, line in enumerate(consoles):
        ready = tmp_path / f"ready-{number}.json"
        line = line.split("  #")[0]
        with shell.running(f"{line} {FREE.format(ready)}", f"console-{number}") as console:
            console.wait_until_ready(ready)
            url = json.loads(ready.read_text())["console"]
            assert url.startswith("https://" if line == with_logins else "http://")
            with httpx.Client(base_url=url, verify=False, timeout=60.0, trust_env=False) as browser:
                assert browser.get("/ready").status_code == 200
                # With users there is a page to log in, and no other.
                assert (browser.get("/").status_code == 200) is (line != with_logins)
