"""`penstock log verify` and transactions: a marker that ended nothing, and one that ended the wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.log.cleaning.cleaner import clean
from penstock.log.cleaning.compaction import facts_of, plan_cleaning
from penstock.log.cleaning.swap import swap_in
from penstock.log.tools.verify import verify_partition
from penstock.wire.batches.records import control_marker
from tests.unit.log_helpers import append, batch, make_log

Step = tuple[str, int] | tuple[str, int, int]
"""("data", epoch), or a marker with its epoch and, where that is not 0, the coordinator's epoch."""


def written(path: Path, steps: list[Step], **settings: object) -> Path:
    log = make_log(path, **settings)
    sequences: dict[int, int] = {}
    for kind, epoch, *more in steps:
        if kind == "roll":
            log.roll()
        elif kind == "data":
            sequence = sequences[epoch] = sequences.get(epoch, -1) + 1
            append(log, batch([b"v"], key=b"k", producer=(7, epoch, sequence), transactional=True))
        else:
            coordinator = more[0] if more else 0
            data = bytearray(control_marker(kind, coordinator, 7, epoch, log.clock.now_ms()))  # type: ignore[arg-type]
            append(log, data, origin="coordinator")
    log.close()
    return path / "t-0"


@pytest.mark.promise(
    "log",
    "`penstock log verify` reports a transaction marker that ended no transaction, and a version 2 "
    "transaction ended by a marker of its own epoch; cases that may be legitimate are warnings",
)
@pytest.mark.parametrize(
    ("steps", "version", "expected"),
    [
        # in order
        ([("data", 0), ("commit", 1), ("data", 1), ("data", 1), ("abort", 2)], None, []),
        ([("data", 0), ("commit", 0), ("data", 0), ("abort", 0)], None, []),
        ([("data", 0), ("abort", 1), ("data", 1), ("commit", 1)], None, []),  # fenced, then version 1
        ([("data", 0), ("commit", 0), ("data", 0), ("commit", 1), ("data", 1), ("commit", 2)], None, []),
        # a late duplicate ends the next transaction
        ([("data", 0), ("commit", 1), ("data", 1), ("commit", 1)], None, [("error", "own epoch 1")]),
        ([("data", 0), ("commit", 1), ("data", 1), ("abort", 1)], None, [("error", "own epoch 1")]),
        ([("data", 0), ("commit", 0)], 2, [("error", "own epoch 0")]),
        ([("data", 0), ("commit", 1), ("data", 1), ("commit", 1)], 1, []),
        # a marker that ended nothing
        ([("data", 0), ("commit", 1), ("commit", 1)], None, [("error", "ended no transaction")]),
        ([("data", 0), ("commit", 0), ("commit", 0)], None, [("warning", "empty transaction")]),
        ([("data", 0), ("commit", 0), ("commit", 0)], 2, [("error", "own epoch 0"), ("error", "ended no")]),
        ([("data", 0), ("commit", 1), ("commit", 1, 1)], None, [("warning", "takes over")]),
        ([("data", 0), ("commit", 1), ("abort", 2)], None, [("warning", "wrote nothing here")]),
        ([("commit", 0)], None, [("warning", "wrote nothing here")]),
    ],
)
def test_markers_are_judged_by_what_the_log_shows(
    tmp_path: Path, steps: list[Step], version: int | None, expected: list[tuple[str, str]]
) -> None:
    partition = written(tmp_path, steps)
    report = verify_partition(str(partition), wait=lambda: None, transaction_version=version)
    assert [problem.severity for problem in report.problems] == [severity for severity, _ in expected]
    for problem, (_, text) in zip(report.problems, expected, strict=True):
        assert text in problem.what


def test_a_marker_whose_records_retention_has_removed_is_no_problem(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log, batch([b"v"], producer=(7, 0, 0), transactional=True))
    log.roll()
    append(log, bytearray(control_marker("commit", 0, 7, 1, log.clock.now_ms())), origin="coordinator")
    log.delete_records_before(1)
    log.close()
    assert verify_partition(str(tmp_path / "t-0"), wait=lambda: None).problems == []


@pytest.mark.promise(
    "log",
    "`penstock log verify` reports a transaction marker that ended no transaction, and a version 2 "
    "transaction ended by a marker of its own epoch; cases that may be legitimate are warnings",
)
def test_a_marker_whose_records_compaction_has_removed_is_no_problem(tmp_path: Path) -> None:
    log = make_log(
        tmp_path, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, index_interval_bytes=1
    )
    for epoch in range(3):
        append(log, batch([b"v"], key=b"k", producer=(7, epoch, 0), transactional=True))
        append(log, bytearray(control_marker("commit", 0, 7, epoch + 1, 0)), origin="coordinator")
        log.roll()
    job = plan_cleaning([facts_of(log)], log.clock.now_ms())
    assert job is not None
    assert swap_in(log, clean(job))
    log.close()
    assert verify_partition(str(tmp_path / "t-0"), wait=lambda: None).problems == []


@pytest.mark.promise(
    "log",
    "`penstock log verify` reports a transaction marker that ended no transaction, and a version 2 "
    "transaction ended by a marker of its own epoch; cases that may be legitimate are warnings",
)
def test_the_command_exits_with_1_for_an_error_and_with_0_for_a_warning(tmp_path: Path) -> None:
    runner = CliRunner()
    partition = str(written(tmp_path, [("data", 0), ("commit", 0), ("commit", 0)]))
    result = runner.invoke(cli, ["log", "verify", partition])
    assert result.exit_code == 0
    assert "warning: producer 7: a commit marker of epoch 0 ended no transaction" in result.output
    assert "1 partition: no problems, 1 warning" in result.output
    strict = runner.invoke(cli, ["log", "verify", partition, "--transaction-version", "2", "--json"])
    assert strict.exit_code == 1
    found = json.loads(strict.output)
    assert not found["clean"]
    assert [p["severity"] for p in found["partitions"][0]["problems"]] == ["error", "error"]
