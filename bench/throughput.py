"""1 KiB records in large batches, in and out, by a client that costs next to nothing, beside the limit of the
same run. What a real client reaches is in `bench/native.py`."""

from __future__ import annotations

from statistics import median

from bench import limits, wire
from bench.process import BrokerProcess, broker, scratch
from bench.report import Report, Result

RECORD_BYTES = 1024
# The largest round number of records below the default max.message.bytes.
RECORDS_IN_BATCH = 1000
BATCHES_IN_FETCH = 8
WARM_UP_ROUNDS = 2
GB = 1e9


def measure(report: Report, *, gigabytes: float, rounds: int) -> None:
    """Limit and broker take turns, so that what else the machine does falls on both.

    Many short rounds rather than a long one: pages that a round frees are written again by the next,
    where a long one measures how the machine (a virtual one above all) finds memory for its page cache.
    """
    batch = wire.batch(RECORDS_IN_BATCH, RECORD_BYTES)
    request = wire.produce_request("load", 0, batch.data)
    repeat = max(1, round(gigabytes * GB / len(request) / BATCHES_IN_FETCH)) * BATCHES_IN_FETCH
    sent = len(request) * repeat / GB
    stored = len(batch.data) * repeat / GB
    found: dict[str, list[float]] = {}
    with scratch() as directory, broker() as process:
        file = directory / "limit"
        for number in range(rounds + WARM_UP_ROUNDS):
            limit_in = sent / limits.seconds_in(file, request, repeat)
            limit_out = stored / limits.seconds_out(file, round(stored * GB))
            file.unlink()
            wire.make_topic(process.port, "load")
            seconds, cpu_in = _produce(process, request, repeat)
            if (there := wire.end_offset(process.port, "load")) != repeat * batch.records:
                raise RuntimeError(f"{there} records in the log, {repeat * batch.records} were acknowledged")
            produce = sent / seconds
            seconds, cpu_out = _fetch(process, batch, repeat)
            fetch = stored / seconds
            wire.drop_topic(process.port, "load")
            process.wait_until_deleted("load")
            if number < WARM_UP_ROUNDS:
                continue
            measured = {
                "in": limit_in,
                "out": limit_out,
                "produce": produce,
                "fetch": fetch,
                "in ratio": produce / limit_in,
                "out ratio": fetch / limit_out,
                "cpu in": cpu_in / sent,
                "cpu out": cpu_out / stored,
            }
            for name, value in measured.items():
                found.setdefault(name, []).append(value)
    middle = {name: median(values) for name, values in found.items()}
    spread = {name: f"{min(values):.2f} to {max(values):.2f}" for name, values in found.items()}
    report.add(
        Result("limit in: socket to file", middle["in"], "GB/s", note=spread["in"]),
        Result("produce, replayed requests of 1 MB", middle["produce"], "GB/s", note=spread["produce"]),
        Result("produce / limit in", middle["in ratio"], "", at_least=0.6, note=spread["in ratio"]),
        Result("broker CPU for produce", middle["cpu in"], "s/GB"),
        Result("limit out: file to socket by sendfile", middle["out"], "GB/s", note=spread["out"]),
        Result("fetch, answers of 8 MB", middle["fetch"], "GB/s", note=spread["fetch"]),
        Result("fetch / limit out", middle["out ratio"], "", at_least=0.7, note=spread["out ratio"]),
        Result("broker CPU for fetch", middle["cpu out"], "s/GB"),
    )


def _produce(process: BrokerProcess, request: bytes, repeat: int) -> tuple[float, float]:
    with wire.connect(process.port) as connection:
        answer_bytes = 4 + len(wire.round_trip(connection, request))
        before = process.cpu_seconds()
        seconds = wire.push(connection, [request], repeat - 1, answer_bytes)
        # One request went ahead of the clock, to learn the size of an answer.
        return seconds * repeat / (repeat - 1), process.cpu_seconds() - before


def _fetch(process: BrokerProcess, batch: wire.Batch, batches: int) -> tuple[float, float]:
    """Every answer holds the same whole number of batches, so that the next offset is known ahead."""
    request = wire.FetchRequest("load", 0, len(batch.data) * BATCHES_IN_FETCH)
    step = BATCHES_IN_FETCH * batch.records
    requests = [request.at(offset) for offset in range(0, batches * batch.records, step)]
    with wire.connect(process.port) as connection:
        answer = wire.round_trip(connection, requests[0])
        if not len(batch.data) * BATCHES_IN_FETCH < len(answer) < len(batch.data) * BATCHES_IN_FETCH + 1000:
            raise RuntimeError(f"an answer of {len(answer)} bytes to a Fetch of {BATCHES_IN_FETCH} batches")
        before = process.cpu_seconds()
        seconds = wire.pull(connection, requests, 4 + len(answer))
        return seconds, process.cpu_seconds() - before
