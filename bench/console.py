"""The web console: its first page with 5,000 topics in a real browser, and searches of 100-byte records."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.process import broker, scratch
from bench.report import Report, Result
from penstock.admin.cluster import Cluster
from penstock.console.reads.messages import Query
from penstock.console.searching import Result as Found
from penstock.console.searching import Search

TOPICS = 5000
_SEARCHES = (
    ("text", "kind-77,"),
    ("regex", r"kind-7{2},"),
    ("json", "$.kind = kind-77,"),
    ("sql", "json->>'$.kind' = 'kind-77,' AND \"offset\" % 2 = 1"),
)
_MINIMUM = 500_000


def measure(report: Report, *, records: int, pages: int) -> None:
    with scratch() as directory, broker() as process:
        _searches(report, process.bootstrap, records)
        _create_topics(process.bootstrap)
        with _console(process.bootstrap, directory) as url:
            _pages(report, url, pages)


def _searches(report: Report, bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.num.messages": 10_000})
    for number in range(records):
        start = json.dumps({"id": number, "kind": f"kind-{number % 1000},"}, separators=(",", ":"))
        value = f'{start[:-1]},"pad":"'
        while True:
            try:
                producer.produce("searched", f'{value}{"x" * (98 - len(value))}"}}'.encode())
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    cluster = Cluster(bootstrap, {}, timeout=60.0)
    cluster.topic("searched")
    for kind, text in _SEARCHES:
        runs = [_search(bootstrap, kind, text) for _ in range(3)]
        rate = records / sorted(seconds for seconds, _ in runs)[1]
        report.add(
            Result(f"console: search by {kind}, records of 100 bytes", rate, "/s", at_least=_MINIMUM),
            Result(
                f"console: search by {kind}, per second of its CPU", records / min(c for _, c in runs), "/s"
            ),
        )


def _search(bootstrap: str, kind: str, text: str) -> tuple[float, float]:
    """Seconds from the click to the result, and of CPU: the search's process starts, too."""
    before = _cpu_of_children()
    began = time.perf_counter()
    search = Search(bootstrap, {}, None, "searched", Query(limit=50, search=text, kind=kind), 60.0)
    try:
        while True:
            report = search.next(60.0)
            if isinstance(report, Found):
                break
            assert time.perf_counter() - began < 600, "the search does not end"
        elapsed = time.perf_counter() - began
    finally:
        search.close()
    assert report.failure is None and len(report.found) == 50, report
    return elapsed, _cpu_of_children() - before


def _cpu_of_children() -> float:
    """Of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for first in range(0, TOPICS, 500):
        new = [NewTopic(f"topic-{number:05}", 1, 1) for number in range(first, first + 500)]
        for future in admin.create_topics(new, request_timeout=120).values():
            future.result()


@contextmanager
def _console(bootstrap: str, directory: Path) -> Iterator[str]:
    ready = directory / "console.json"
    words = ["console", "-b", bootstrap, "--port", "0", "--ready-file", str(ready)]
    with (directory / "console.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "penstock", *words], stdout=log, stderr=log)
    try:
        began = time.perf_counter()
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - began > 60:
                raise RuntimeError("the console did not start:\n" + (directory / "console.log").read_text())
            time.sleep(0.01)
        yield json.loads(ready.read_text())["console"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _pages(report: Report, url: str, pages: int) -> None:
    """From the address to the first rows, with nothing of the browser's cache but what a visitor has."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("  no chromium is installed: pages are not measured")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(60_000)
        for name, path, shown in (
            ("topics", "/topics", "td >> text=topic-00001"),
            ("placement", "/placement", "td >> text=topic-00001"),
            ("overview", "/", "a >> text=5,000"),
        ):
            times = []
            for _ in range(pages + 1):
                began = time.perf_counter()
                page.goto(url + path)
                page.wait_for_selector(shown)
                times.append(time.perf_counter() - began)
            middle = sorted(times[1:])[pages // 2]  # the first one fills the browser's cache
            report.add(Result(f"console: {name} of 5,000 topics, first rows", middle, "s", at_most=1))
        browser.close()
