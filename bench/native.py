"""1 KiB records in large batches through librdkafka, beside the limit of the machine and that of the client.

Every round measures all of them one after the other, and the middle of the rounds counts. The limit of the
machine (`bench/limits.py`) has no client that makes and unpacks records, and all share the same processors:
what librdkafka reaches when a broker costs next to nothing (`bench/null_broker.py`) is measured as well.
docs/benchmarks.md says what holds the share of the limit down.
"""

from __future__ import annotations

import os
from statistics import median

from bench import librdkafka, limits, wire
from bench.null_broker import null_broker
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result

TOPIC = "native"
PARTITIONS = 4  # one producer for all, a consumer for each
WARM_UP_ROUNDS = 1
GB = 1e9
_CPUS = os.cpu_count() or 1


def measure(report: Report, *, gigabytes: float, rounds: int, larger_rounds: int) -> None:
    found = _rounds(1024, gigabytes, rounds)
    middle = {name: median(values) for name, values in found.items()}
    spread = {name: f"{min(values):.2f} to {max(values):.2f}" for name, values in found.items()}

    def processors(way: str) -> str:
        busy = {who: 100 * middle[f"{who} busy {way}"] / _CPUS for who in ("broker", "client")}
        return f"of the CPUs broker {busy['broker']:.0f} %, client {busy['client']:.0f} %"

    def result(name: str, key: str, unit: str = "", at_least: float | None = None, note: str = "") -> Result:
        note = "; ".join(part for part in (spread[key], note) if part)
        return Result(name, middle[key], unit, at_least=at_least, note=note)

    report.add(
        result("librdkafka: limit in", "limit in", "GB/s"),
        result("librdkafka: produce", "in", "GB/s", note=processors("in")),
        result("librdkafka: produce / limit in", "ratio in", at_least=0.6),
        result("librdkafka: produce, nothing behind it", "null in", "GB/s"),
        result("librdkafka: produce / nothing behind it", "null ratio in"),
        result("librdkafka: limit out", "limit out", "GB/s"),
        result("librdkafka: fetch", "out", "GB/s", note=processors("out")),
        result("librdkafka: fetch / limit out", "ratio out", at_least=0.7),
        result("librdkafka: fetch, nothing behind it", "null out", "GB/s"),
        result("librdkafka: fetch / nothing behind it", "null ratio out"),
    )
    if not larger_rounds:
        return
    rows = [_row(1024, middle)]
    for size in (16 * 1024, 100 * 1024):
        more = _rounds(size, gigabytes, larger_rounds)
        rows.append(_row(size, {name: median(values) for name, values in more.items()}))
    report.table("librdkafka by size of the record: GB/s, share of the limit, CPU-seconds for each GB", rows)


def _row(size: int, middle: dict[str, float]) -> dict[str, float | int]:
    row: dict[str, float | int] = {"bytes": size}
    for name, way in (("produce", "in"), ("fetch", "out")):
        row[name] = middle[way]
        row[f"{name}/limit"] = middle[f"ratio {way}"]
        row[f"{name}/nothing"] = middle[f"null ratio {way}"]
        for who in ("broker", "client"):
            row[f"{name}: {who}"] = middle[f"{who} busy {way}"] / middle[way]
    return row


def _rounds(size: int, gigabytes: float, rounds: int) -> dict[str, list[float]]:
    records = round(gigabytes * GB / size / PARTITIONS) * PARTITIONS
    # The limit moves as many bytes, in pieces as large as the requests.
    piece = wire.produce_request("limit", 0, wire.batch(1000, 1024).data)
    repeat = max(1, round(records * size / len(piece)))
    found: dict[str, list[float]] = {}
    with scratch() as directory, broker() as process:
        file = directory / "limit"
        for number in range(rounds + WARM_UP_ROUNDS):
            volume = len(piece) * repeat
            limit_in = volume / GB / limits.seconds_in(file, piece, repeat)
            limit_out = volume / GB / limits.seconds_out(file, volume)
            file.unlink()
            measured = {"limit in": limit_in, "limit out": limit_out}
            wire.make_topic(process.port, TOPIC, PARTITIONS)
            measured |= _through(process, records, size)
            wire.drop_topic(process.port, TOPIC)
            process.wait_until_deleted(TOPIC)
            for way in ("in", "out"):
                measured[f"ratio {way}"] = measured[way] / measured[f"limit {way}"]
                measured[f"null ratio {way}"] = measured[way] / measured[f"null {way}"]
            if number >= WARM_UP_ROUNDS:
                for name, value in measured.items():
                    found.setdefault(name, []).append(value)
    return found


def _through(process: BrokerProcess, records: int, size: int) -> dict[str, float]:
    volume = records * size / GB
    measured: dict[str, float] = {}
    for way, name in (("in", "produce"), ("out", "consume")):
        before = process.cpu_seconds()
        run = librdkafka.run(name, process.port, TOPIC, PARTITIONS, records, size)
        measured[way] = volume / run.seconds
        measured[f"broker busy {way}"] = (process.cpu_seconds() - before) / run.seconds
        measured[f"client busy {way}"] = run.cpu_seconds / run.seconds
        if (there := wire.end_offset(process.port, TOPIC, PARTITIONS)) != records:
            raise RuntimeError(f"{there} records in the log, {records} were delivered")
    directories = [process.directory / "data" / f"{TOPIC}-{index}" for index in range(PARTITIONS)]
    with null_broker(TOPIC, directories) as (port, _):
        for way, name in (("in", "produce"), ("out", "consume")):
            run = librdkafka.run(name, port, TOPIC, PARTITIONS, records, size)
            measured[f"null {way}"] = volume / run.seconds
    return measured
