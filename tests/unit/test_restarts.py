"""What is kept running is started again later and later, and its last failure is shown until it works."""

from __future__ import annotations

import pytest

from penstock.restarts import Backoff, Restarts


@pytest.mark.promise(
    "pipelines", "A failed flow restarts from its checkpoint and shows the cause, while others continue"
)
@pytest.mark.parametrize("luck", [0.0, 0.5, 0.999])
def test_pauses_double_up_to_a_limit(luck: float) -> None:
    backoff = Backoff(first=1.0, limit=60.0)
    delays = [backoff.delay(failures, luck) for failures in range(1, 12)]
    assert delays == sorted(delays)
    assert 0.75 <= delays[0] <= 1.0
    assert delays[-1] <= 60.0
    assert backoff.delay(5000, luck) <= 60.0


def test_a_failure_is_due_again_after_its_pause() -> None:
    life = Restarts(Backoff(first=2.0))
    life.started(10.0)
    assert life.failed("broken", 11.0, 1.0) == 2.0
    assert (life.due, life.error, life.failures, life.total) == (13.0, "broken", 1, 1)
    assert life.failed("cannot start", 13.0, 1.0) == 4.0
    assert (life.due, life.error, life.failures, life.total) == (17.0, "cannot start", 2, 2)


def test_a_healthy_run_begins_with_short_pauses_again_and_a_failed_start_does_not() -> None:
    life = Restarts(Backoff(first=1.0, healthy_after=60.0))
    for now in (0.0, 10.0, 20.0):
        life.started(now)
        life.failed("broken", now + 1, 1.0)
    assert life.failures == 3
    life.started(100.0)
    assert life.failed("broken", 161.0, 1.0) == 1.0
    # Starts that fail long after that are no run of that length.
    assert life.failed("cannot start", 300.0, 1.0) == 2.0


def test_the_last_failure_is_shown_until_the_run_works_or_has_lasted() -> None:
    life = Restarts(Backoff(quiet_after=15.0))
    life.started(0.0)
    life.failed("broken", 1.0, 0.0)
    life.started(2.0)
    life.works(10.0)
    assert life.error == "broken"
    life.works(11.0, proven=True)
    assert (life.error, life.failures) == (None, 1)
    life.failed("broken again", 12.0, 0.0)
    life.started(20.0)
    life.works(36.0)
    assert life.error is None


def test_attempts_are_limited_and_whoever_restarts_it_begins_anew() -> None:
    life = Restarts(Backoff(first=1.0, attempts=2))
    assert [life.failed("broken", 0.0, 1.0) for _ in range(4)] == [1.0, 2.0, None, None]
    life.forget()
    assert (life.failures, life.error) == (0, None)
    assert life.failed("broken", 0.0, 1.0) == 1.0


def test_an_end_that_is_no_failure_is_started_again_at_once_and_counts_nothing() -> None:
    life = Restarts()
    life.started(5.0)
    life.again()
    assert (life.due, life.error, life.failures, life.total) == (0.0, None, 0, 0)
