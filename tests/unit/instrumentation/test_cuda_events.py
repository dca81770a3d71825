"""Given a clock of a CUDA device, then it records few events, each again once it was read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distrain.runners.distributed import cuda_timing
from distrain.runners.distributed.cuda_timing import CudaClock
from distrain.runners.distributed.timing import ClockReading


class Event:
    """An event of a device that works at once; `now` are the seconds of host and device."""

    made = recorded = 0
    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        Event.made += 1

    def record(self, stream: Any) -> None:
        Event.recorded += 1
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: Event) -> float:
        return 1000.0 * (later.at - self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> CudaClock:
    monkeypatch.setattr(cuda_timing, "time", SimpleNamespace(perf_counter=lambda: Event.now))
    Event.made = Event.recorded = 0
    Event.now = 0.0
    clock = CudaClock(0)
    clock._cuda = SimpleNamespace(Event=Event, current_stream=lambda device: None)  # type: ignore
    clock.stamp()  # a hook may take one before the first window
    clock.start()
    return clock


def window(clock: CudaClock, steps: int, step_s: float) -> ClockReading:
    """Make steps of which a quarter is data, a half forward and the rest backward, with a wait."""
    for _ in range(steps):
        for phase, share in (("data", 0.25), ("forward", 0.5), ("backward", 0.25)):
            arrival = clock.stamp()
            Event.now += share * step_s
            clock.mark(phase)
        clock.add_all_reduces([(arrival, clock.stamp())], clock.stamp())
        clock.end_step()
    return clock.close().get()


def test_events_are_recorded_again_after_they_were_read(clock: CudaClock) -> None:
    for _ in range(10):
        for _ in range(50):
            Event.now += 1
            at = clock.stamp()
            clock.mark("forward", at)
            clock.mark("other", at)
            Event.now += 1
            clock.mark("backward")
        reading = clock.close().get()
        assert reading.seconds == 100.0
        assert reading.phases["forward"] == reading.phases["backward"] == 50.0
    before_the_first, of_a_window, ends = 1, 2 * 50, 1 + 10
    assert Event.made == before_the_first + of_a_window + ends


@pytest.mark.parametrize("step_s", [0.0005, 0.0009, 0.004, 0.006, 0.5])
def test_the_phases_of_short_steps_are_measured_in_some_of_them(
    clock: CudaClock, step_s: float
) -> None:
    # given a first window, whose steps show how long one takes
    window(clock, 20, step_s)
    Event.recorded = 0
    reading = window(clock, 100, step_s)
    # then phases, overlap and wait are those of all steps
    seconds = 100 * step_s
    assert reading.seconds == pytest.approx(seconds)
    shares = {"data": 0.25, "forward": 0.5, "backward": 0.25, "other": 0.0}
    for phase, share in shares.items():
        assert reading.phases[phase] == pytest.approx(share * seconds, abs=1e-9)
    assert reading.wait == reading.overlap == pytest.approx(0.25 * seconds)
    # and steps of less than 5 ms have few events
    each = 8 * 100  # three phases with a stamp before each, and two stamps after
    assert Event.recorded == each + 1 if step_s > 0.005 else Event.recorded < each * 0.6
    if step_s < 0.001:
        assert Event.recorded < each / 5


def test_what_only_a_measured_step_does_is_not_more_than_the_window(clock: CudaClock) -> None:
    window(clock, 20, 0.0005)
    # given a window whose first step is long
    Event.now += 1.0
    clock.mark("data")
    clock.end_step()
    for _ in range(9):
        Event.now += 0.0005
        clock.mark("data")
        clock.end_step()
    reading = clock.close().get()
    assert sum(reading.phases.values()) == pytest.approx(reading.seconds) == pytest.approx(1.0045)
