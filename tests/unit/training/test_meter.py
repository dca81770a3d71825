"""Windows: sums over steps, closed by time, warm-up and evaluation, with a manual clock."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from distrain.runners.distributed.timing import ClockReading, CpuClock, CpuReading, covered_seconds
from distrain.runners.protocol.events import Event, NonFinite, Window
from distrain.runners.training.meter import MAX_WINDOW_STEPS, Meter
from tests.support.reporters import RecordingReporter

STEP_S = 0.25  # binary fractions add without error


class ManualClock:
    """A clock that stands still until the test changes `now`."""

    now = 0.0

    def start(self) -> None:
        self._began = self._last = self.now
        self._phases = ClockReading().phases

    def stamp(self) -> float:
        return self.now

    def mark(self, phase: str, at: Any = None) -> None:
        now = self.now if at is None else at
        self._phases[phase] += now - self._last
        self._last = now

    def skip(self) -> None:
        self._began += self.now - self._last
        self._last = self.now

    def end_step(self) -> None:
        pass

    def elapsed(self) -> float:
        return self.now - self._began

    def close(self) -> CpuReading:
        reading = ClockReading(self.elapsed(), self._phases)
        self.start()
        return CpuReading(reading)


class MeteredSteps:
    """A meter, its clock, and steps of one or several micro-batches."""

    def __init__(
        self,
        window_s: float = 1e9,
        warmup_until: int = 0,
        reporter: RecordingReporter | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.reporter = reporter or RecordingReporter()
        self.step = 0
        self.meter = Meter(self.reporter, 2, self.clock, window_s, warmup_until)
        self.meter.begin()

    def run(self, *losses: float, samples: int = 4, skipped: float | None = None) -> None:
        for loss in losses:
            self.run_step([loss], [samples], skipped)

    def run_step(
        self, losses: list[float], samples: list[int], skipped: float | None = None
    ) -> None:
        for loss, count in zip(losses, samples, strict=True):
            self.meter.add_loss(torch.tensor(loss), count)
        self.clock.now += STEP_S
        self.clock.mark("forward")
        self.step += 1
        flag = None if skipped is None else torch.tensor(skipped)
        self.meter.end_step(0, self.step, 0.1, flag)


def test_the_loss_of_a_window_counts_batches_by_their_weight() -> None:
    metered = MeteredSteps()
    metered.meter.add_loss(torch.tensor(1.0), 4, 6.0)
    metered.meter.add_loss(torch.tensor(3.0), 4, 2.0)
    metered.meter.add_loss(torch.tensor(float("nan")), 4, 0.0)
    metered.run_step([], [])
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.samples, window.loss_sum, window.loss_weight) == (12, 12.0, 8.0)
    assert (window.loss_min, window.loss_max) == (1.0, 3.0)


def test_a_window_sums_its_steps() -> None:
    metered = MeteredSteps()
    metered.run(1.0, 3.0, 2.0)
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.rank, window.epoch, window.step, window.steps) == (2, 0, 3, 3)
    assert (window.samples, window.loss_sum, window.loss_weight) == (12, 24.0, None)
    assert (window.loss_min, window.loss_max, window.lr) == (1.0, 3.0, 0.1)
    assert (window.seconds, window.forward, window.skipped) == (3 * STEP_S, 3 * STEP_S, 0)


def test_a_window_is_reported_once_it_is_long_enough() -> None:
    metered = MeteredSteps(window_s=3 * STEP_S)
    metered.run(*[1.0] * 8)
    assert [window.step for window in metered.reporter.windows] == [3, 6]
    metered.meter.flush()
    assert [window.steps for window in metered.reporter.windows] == [3, 3, 2]


def test_the_time_of_reporting_is_part_of_the_next_window_and_of_no_phase() -> None:
    class SlowReporter(RecordingReporter):
        def send(self, event: Event) -> None:
            metered.clock.now += 1.0
            super().send(event)

    slow = SlowReporter()
    metered = MeteredSteps(window_s=STEP_S, reporter=slow)
    metered.run(1.0, 1.0, 1.0)
    assert [window.seconds for window in slow.windows] == [STEP_S, 1.0 + STEP_S, 1.0 + STEP_S]
    assert [window.forward for window in slow.windows] == [STEP_S] * 3
    # but the time of an evaluation after the last of them belongs to none
    metered.clock.now += 9.0
    metered.meter.begin()
    metered.run(1.0)
    assert slow.windows[-1].seconds == STEP_S


def test_nothing_is_reported_without_steps() -> None:
    metered = MeteredSteps()
    metered.meter.flush()
    metered.meter.flush()
    assert metered.reporter.events == []


def test_a_window_closes_after_a_maximum_of_steps() -> None:
    metered = MeteredSteps()
    metered.run(*[1.0] * (MAX_WINDOW_STEPS + 1))
    assert [window.steps for window in metered.reporter.windows] == [MAX_WINDOW_STEPS]


def test_no_window_crosses_the_end_of_warm_up() -> None:
    metered = MeteredSteps(window_s=4 * STEP_S, warmup_until=6)
    metered.run(*[1.0] * 12)
    metered.meter.flush()
    reported = [(window.step, window.steps, window.warmup) for window in metered.reporter.windows]
    assert reported == [(4, 4, True), (6, 2, True), (10, 4, False), (12, 2, False)]


def test_without_warm_up_every_window_counts() -> None:
    metered = MeteredSteps(window_s=STEP_S)
    metered.run(1.0, 1.0)
    assert [window.warmup for window in metered.reporter.windows] == [False, False]


def test_time_between_two_windows_is_in_none() -> None:
    # given steps, then an evaluation of 100 seconds, then steps
    metered = MeteredSteps()
    metered.run(1.0)
    metered.meter.flush()
    metered.clock.now += 100
    metered.meter.begin()
    metered.run(1.0)
    metered.meter.flush()
    # then no window includes it
    assert [window.seconds for window in metered.reporter.windows] == [STEP_S, STEP_S]


def test_losses_of_micro_batches_are_weighted_by_their_samples() -> None:
    metered = MeteredSteps()
    metered.run_step([1.0, 4.0], [3, 1])
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.samples, window.loss_sum, window.steps) == (4, 7.0, 1)


def test_a_placeholder_micro_batch_is_not_counted() -> None:
    metered = MeteredSteps()
    metered.run_step([2.0, 1000.0], [3, 0])
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.samples, window.loss_sum, window.loss_max) == (3, 6.0, 2.0)


def test_a_window_without_samples_has_a_loss_sum_of_zero_and_no_extremes() -> None:
    metered = MeteredSteps()
    metered.run_step([1000.0], [0])
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.samples, window.loss_sum, window.loss_min) == (0, 0.0, None)


def test_skipped_steps_are_counted() -> None:
    metered = MeteredSteps()
    metered.run(1.0, 1.0, skipped=1.0)
    metered.run(1.0, skipped=0.0)
    metered.meter.flush()
    [window] = metered.reporter.windows
    assert (window.steps, window.skipped, window.loss_sum) == (3, 2, 12.0)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_non_finite_loss_is_reported_with_its_step_before_the_window(loss: str) -> None:
    metered = MeteredSteps()
    metered.run(1.0)
    metered.meter.flush()
    metered.meter.begin()
    metered.run(1.0, 1.0, float(loss), float("nan"), 1.0)
    metered.meter.flush()
    _, report, window = metered.reporter.events
    assert isinstance(report, NonFinite)
    assert (report.rank, report.step, report.loss) == (2, 4, loss)
    assert isinstance(window, Window)
    assert (window.loss_sum, window.loss_min, window.loss_max) == (None, None, None)
    assert (window.steps, window.samples) == (5, 20)
    assert not metered.meter.finite


def test_losses_whose_sum_is_too_large_for_a_float_are_finite_and_have_no_sum() -> None:
    metered = MeteredSteps()
    for _ in range(2):
        metered.meter.add_loss(torch.tensor(1e308, dtype=torch.float64), 1)
    metered.meter.end_step(0, 1, 0.1, None)
    metered.meter.flush()
    [window] = metered.reporter.events
    assert (window.loss_sum, window.loss_min, window.loss_max) == (None, None, None)


def test_the_step_of_a_non_finite_micro_batch_is_found() -> None:
    metered = MeteredSteps()
    for _ in range(3):
        metered.run_step([1.0, 1.0], [2, 2])
    metered.run_step([1.0, float("nan")], [2, 2])
    metered.meter.flush()
    assert [report.step for report in metered.reporter.events_of(NonFinite)] == [4]


def test_a_non_finite_placeholder_neither_counts_nor_shifts_the_step() -> None:
    metered = MeteredSteps()
    metered.run_step([1.0, float("nan")], [1, 0])
    metered.meter.flush()
    assert metered.meter.finite
    assert metered.reporter.events_of(NonFinite) == []
    metered.meter.begin()
    metered.run_step([1.0, float("nan")], [1, 0])
    metered.run_step([float("inf"), 1.0], [1, 1])
    metered.meter.flush()
    [report] = metered.reporter.events_of(NonFinite)
    assert (report.step, report.loss) == (3, "inf")


def test_merged_windows_equal_one_long_window() -> None:
    losses = [0.5, 2.0, 1.25, 0.75, 3.0, 1.0]
    short = MeteredSteps(window_s=STEP_S)
    long = MeteredSteps()
    for metered in (short, long):
        metered.run(*losses, skipped=1.0)
        metered.meter.flush()
    first, *rest = short.reporter.windows
    assert len(rest) == 5
    for window in rest:
        first = first.merged(window)
    [expected] = long.reporter.windows
    fields = set(Window.__struct_fields__) - {"time"}
    assert {f: getattr(first, f) for f in fields} == {f: getattr(expected, f) for f in fields}


def test_a_late_reading_is_reported_when_it_is_ready_and_in_order() -> None:
    # given a device whose time stamps arrive late
    class LateReading(CpuReading):
        ready = False

        def is_ready(self) -> bool:
            return self.ready

    pending: list[LateReading] = []

    class LateClock(ManualClock):
        def close(self) -> CpuReading:
            pending.append(LateReading(super().close().reading))
            return pending[-1]

    metered = MeteredSteps()
    clock = LateClock()
    metered.clock = clock
    metered.meter = Meter(metered.reporter, 2, clock, STEP_S, 0)
    metered.meter.begin()
    # when windows close earlier, then nothing is reported
    metered.run(1.0, 2.0)
    assert metered.reporter.windows == []
    # when the second is ready before the first, then they are still reported in order
    pending[1].ready = True
    metered.run(3.0)
    assert metered.reporter.windows == []
    pending[0].ready = True
    metered.run(4.0)
    assert [window.step for window in metered.reporter.windows] == [1, 2]
    # and a flush waits for the rest
    metered.meter.flush()
    assert [window.loss_sum for window in metered.reporter.windows] == [4.0, 8.0, 12.0, 16.0]


def test_losses_are_fetched_before_the_last_stamp_of_their_window() -> None:
    # On a GPU the losses count as ready once the stamp is.
    order: list[str] = []

    class Loss(torch.Tensor):
        is_cpu = False

        @classmethod
        def __torch_function__(cls, function: Any, *rest: Any) -> Any:
            if function is torch.stack:
                order.append("losses")
            return super().__torch_function__(function, *rest)

    class NotingClock(ManualClock):
        def close(self) -> CpuReading:
            order.append("stamp")
            return super().close()

    meter = Meter(RecordingReporter(), 0, NotingClock(), 1e9, 0)
    meter.begin()
    meter.add_loss(torch.tensor(1.0).as_subclass(Loss), 1)
    meter.end_step(0, 1, 0.1, None)
    meter.flush()
    assert order == ["losses", "stamp"]


def test_the_cpu_clock_assigns_every_moment_to_one_phase() -> None:
    clock = CpuClock()
    clock.start()
    clock.mark("data")
    stamp = clock.stamp()
    clock.mark("backward")
    clock.mark("comm", stamp)  # begins where backward ended, ends at the stamp before
    clock.mark("optimizer")
    reading = clock.close().get()
    assert sum(reading.phases.values()) <= reading.seconds
    assert reading.phases["comm"] <= 0 < reading.phases["backward"]
    assert reading.phases["forward"] == 0


def test_overlap_and_wait_are_not_phases() -> None:
    clock = CpuClock()
    clock.start()
    # given two steps of two buckets each, gradients complete at 3 and at 13
    clock.add_all_reduces([(1.0, 2.0), (2.5, 4.0)], until=3.0)
    clock.add_all_reduces([(11.0, 15.0), (12.0, 14.0)], until=13.0)
    reading = clock.close().get()
    # then the part before that is overlap, counted once where buckets overlap each other
    assert reading.overlap == 1.5 + 2.0
    # and the rank waited for the duration of its first bucket
    assert reading.wait == 1.0 + 4.0
    assert sum(reading.phases.values()) == 0


def test_an_all_reduce_after_backward_has_no_overlap() -> None:
    clock = CpuClock()
    clock.start()
    clock.add_all_reduces([(1.0, 2.0), (2.0, 5.0)])
    clock.add_all_reduces([])
    reading = clock.close().get()
    assert (reading.overlap, reading.wait) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([(0.0, 4.0)], 3.0),
        ([(0.0, 1.0), (2.0, 4.0)], 2.0),
        ([(0.0, 2.0), (1.0, 1.5), (1.0, 9.0)], 3.0),
        ([(5.0, 6.0)], 0.0),
    ],
    ids=["one", "with a gap", "nested", "too late"],
)
def test_covered_seconds_end_at_the_last_gradient(
    spans: list[tuple[float, float]], seconds: float
) -> None:
    assert covered_seconds(spans, 3.0) == seconds


def test_the_steps_before_a_failure_are_reported() -> None:
    metered = MeteredSteps()
    metered.run(2.0, 2.0)
    metered.meter.add_loss(torch.tensor(9.0), 4)  # then backward fails
    metered.meter.flush_after_error()
    [window] = metered.reporter.windows
    assert (window.step, window.steps, window.samples, window.loss_sum) == (2, 2, 8, 16.0)


def test_the_hang_that_ends_in_a_failure_is_in_no_window() -> None:
    metered = MeteredSteps()
    metered.run(2.0, 2.0)
    metered.clock.now += 100  # in a collective that times out
    metered.meter.flush_after_error()
    [window] = metered.reporter.windows
    assert window.seconds == 2 * STEP_S
