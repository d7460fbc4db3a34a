"""Times of requests in buckets, and what Prometheus is shown of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.metrics.collector import _histogram
from penstock.broker.metrics.request_times import RequestTimes, bucket


@given(st.lists(st.floats(0, 60), max_size=30))
def test_a_bucket_has_all_that_took_no_longer(taken: list[float]) -> None:
    times = RequestTimes()
    for one in taken:
        times.waited(one)
    (family,) = [_histogram("t_ms", "", [((), times.total)], (), 1e3)]
    shown = {sample.labels["le"]: sample.value for sample in family.samples if sample.name == "t_ms_bucket"}
    assert shown.pop("+Inf") == len(taken)
    for limit, count in shown.items():
        # Times are counted in whole microseconds, so one within the last of a bucket is in it.
        assert sum(one * 1e3 < float(limit) * (1 - 1e-5) for one in taken) <= count
        assert count <= sum(one * 1e3 <= float(limit) * (1 + 1e-5) for one in taken)


def test_work_and_waits_are_told_apart() -> None:
    times = RequestTimes()
    times.begun(0.001)
    assert (times.count, times.local.count, times.total.count) == (1, 1, 0), "the answer is not there yet"
    times.waited(0.5)
    assert (times.local.seconds, times.total.seconds) == (0.001, 0.5)


def test_a_wait_of_hours_is_in_the_last_bucket() -> None:
    assert bucket(1e6) == len(RequestTimes().buckets) - 1
