"""The fault plan: which request is hit by which fault, and what is counted."""

from __future__ import annotations

import pytest

from penstock.testing.faults import API_VERSIONS, Fault, FaultKind, FaultPlan

PRODUCE, FETCH, METADATA = 0, 1, 3


def fail(api_key: int | None, times: int | None = 1, skip: int = 0, error_code: int = 6) -> Fault:
    return Fault(FaultKind.FAIL, api_key, times, skip, error_code=error_code)


def decisions(plan: FaultPlan, api_key: int, count: int) -> list[bool]:
    return [plan.decide(api_key) is not None for _ in range(count)]


def test_without_rules_every_request_passes_and_is_counted() -> None:
    plan = FaultPlan()
    assert decisions(plan, PRODUCE, 3) == [False, False, False]
    assert plan.seen == {PRODUCE: 3}
    assert not plan.hit


def test_a_fault_acts_as_many_times_as_it_says_and_is_then_gone() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE, times=2))
    assert decisions(plan, PRODUCE, 4) == [True, True, False, False]
    assert plan.hit == {PRODUCE: 2}
    assert plan.pending == []


def test_a_fault_without_times_acts_until_cleared_and_the_counters_stay() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE, times=None))
    assert decisions(plan, PRODUCE, 5) == [True] * 5
    plan.clear()
    assert decisions(plan, PRODUCE, 2) == [False, False]
    assert plan.seen == {PRODUCE: 7}
    assert plan.hit == {PRODUCE: 5}


def test_a_fault_hits_only_its_api() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE))
    assert plan.decide(FETCH) is None
    assert plan.decide(PRODUCE) is not None


def test_skip_lets_the_first_requests_pass() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE, times=2, skip=2))
    assert decisions(plan, PRODUCE, 6) == [False, False, True, True, False, False]


def test_rules_act_in_the_order_in_which_they_were_made() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE, times=1, error_code=6))
    plan.add(Fault(FaultKind.DROP, PRODUCE, 1))
    plan.add(fail(PRODUCE, times=1, error_code=7))
    hits = [plan.decide(PRODUCE) for _ in range(4)]
    assert [hit and (hit.kind, hit.error_code) for hit in hits] == [
        (FaultKind.FAIL, 6),
        (FaultKind.DROP, 0),
        (FaultKind.FAIL, 7),
        None,
    ]


def test_a_rule_that_still_skips_does_not_hide_the_next_one() -> None:
    plan = FaultPlan()
    plan.add(fail(PRODUCE, skip=1, error_code=6))
    plan.add(fail(PRODUCE, error_code=7))
    first, second = plan.decide(PRODUCE), plan.decide(PRODUCE)
    assert first is not None and first.error_code == 7
    assert second is not None and second.error_code == 6


def test_every_api_means_all_but_api_versions() -> None:
    plan = FaultPlan()
    plan.add(fail(None, times=None))
    assert plan.decide(API_VERSIONS) is None
    assert plan.decide(METADATA) is not None
    plan.add(fail(API_VERSIONS))
    assert plan.decide(API_VERSIONS) is not None


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ({"kind": FaultKind.FAIL, "api_key": 0, "times": 0, "error_code": 6}, "times=0"),
        ({"kind": FaultKind.DROP, "api_key": 0, "skip": -1}, "skip=-1"),
        ({"kind": FaultKind.FAIL, "api_key": 0}, "error NONE"),
        ({"kind": FaultKind.DELAY, "api_key": 0, "delay_ms": -5}, "ms=-5"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fault: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Fault(**fault)  # type: ignore[arg-type]
