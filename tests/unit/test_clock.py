"""Clocks: what moves them and what does not."""

import time

import pytest

from penstock.clock import ManualClock, ShiftedClock, SteadyClock, SystemClock


def test_a_manual_clock_moves_both_readings_only_when_told() -> None:
    clock = ManualClock(now_ms=5_000)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0.0)
    clock.advance(1_500)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)


def test_a_shifted_clock_follows_its_base_and_jumps_when_told() -> None:
    base = ManualClock(now_ms=1_000)
    clock = ShiftedClock(base)
    clock.advance(60_000)
    base.advance(1)
    assert (clock.now_ms(), clock.monotonic()) == (61_001, 60.001)


@pytest.mark.parametrize("clock", [ManualClock(), ShiftedClock()])
def test_no_clock_goes_back(clock: ManualClock | ShiftedClock) -> None:
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)


def test_the_system_clock_reads_milliseconds_since_the_epoch() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now


@pytest.mark.promise(
    "hostile input", "The timeouts of coordinators expire on time even if the machine's clock is set back"
)
def test_a_steady_clock_does_not_jump_with_the_machines() -> None:
    machine = ManualClock(1_000_000)
    steady = SteadyClock(machine)
    for jump in (3_600_000, -7_200_000):
        machine._start_ms += jump
        machine.advance(250)
    assert steady.now_ms() == 1_000_500
    assert steady.monotonic() == machine.monotonic()
