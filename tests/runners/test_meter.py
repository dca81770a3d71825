"""Windows: sums over steps, closed by time, warm-up and evaluation, on a clock set by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runners.clock import CpuClock, Reading, Ready, hidden, no_time
from runners.events import Event, NonFinite, Window
from runners.meter import WIDEST, Meter
from runners.reporter import NullReporter

STEP_S = 0.25  # binary fractions add without error


class HandClock:
    """Time that passes when the test says so."""

    now = 0.0

    def start(self) -> None:
        self._began = self._last = self.now
        self._phases = no_time()

    def stamp(self) -> float:
        return self.now

    def mark(self, phase: str, at: Any = None) -> None:
        now = self.now if at is None else at
        self._phases[phase] += now - self._last
        self._last = now

    def elapsed(self) -> float:
        return self.now - self._began

    def close(self) -> Ready:
        reading = Reading(self.elapsed(), self._phases)
        self.start()
        return Ready(reading)


class Ear(NullReporter):
    def __init__(self) -> None:
        self.said: list[Event] = []

    def say(self, event: Event) -> None:
        self.said.append(event)

    @property
    def windows(self) -> list[Window]:
        return [event for event in self.said if isinstance(event, Window)]

    @property
    def cries(self) -> list[NonFinite]:
        return [event for event in self.said if isinstance(event, NonFinite)]


class Bench:
    """A meter, its clock, and steps of one or several micro-batches."""

    def __init__(self, window_s: float = 1e9, warmup_until: int = 0) -> None:
        self.clock, self.ear, self.step = HandClock(), Ear(), 0
        self.meter = Meter(self.ear, 2, self.clock, window_s, warmup_until)
        self.meter.begin()

    def steps(self, *losses: float, samples: int = 4, skipped: float | None = None) -> None:
        for loss in losses:
            self.one([loss], [samples], skipped)

    def one(self, losses: list[float], samples: list[int], skipped: float | None = None) -> None:
        for loss, count in zip(losses, samples, strict=True):
            self.meter.loss(torch.tensor(loss), count)
        self.clock.now += STEP_S
        self.clock.mark("forward")
        self.step += 1
        flag = None if skipped is None else torch.tensor(skipped)
        self.meter.step(0, self.step, 0.1, flag)


def test_a_window_sums_its_steps() -> None:
    bench = Bench()
    bench.steps(1.0, 3.0, 2.0)
    bench.meter.flush()
    [window] = bench.ear.windows
    assert (window.rank, window.epoch, window.step, window.steps) == (2, 0, 3, 3)
    assert (window.samples, window.loss_sum) == (12, 24.0)
    assert (window.loss_min, window.loss_max, window.lr) == (1.0, 3.0, 0.1)
    assert (window.seconds, window.forward, window.skipped) == (3 * STEP_S, 3 * STEP_S, 0)


def test_a_window_is_said_once_it_is_long_enough() -> None:
    bench = Bench(window_s=3 * STEP_S)
    bench.steps(*[1.0] * 8)
    assert [window.step for window in bench.ear.windows] == [3, 6]
    bench.meter.flush()
    assert [window.steps for window in bench.ear.windows] == [3, 3, 2]


def test_what_it_takes_to_say_a_window_is_part_of_the_next_and_of_no_phase() -> None:
    bench = Bench(window_s=STEP_S)

    class Slow(Ear):
        def say(self, event: Event) -> None:
            bench.clock.now += 1.0
            super().say(event)

    bench.meter._reporter = slow = Slow()
    bench.steps(1.0, 1.0, 1.0)
    assert [window.seconds for window in slow.windows] == [STEP_S, 1.0 + STEP_S, 1.0 + STEP_S]
    assert [window.forward for window in slow.windows] == [STEP_S] * 3
    # but an evaluation after the last of them is in none
    bench.clock.now += 9.0
    bench.meter.begin()
    bench.steps(1.0)
    assert slow.windows[-1].seconds == STEP_S


def test_nothing_is_said_of_no_steps() -> None:
    bench = Bench()
    bench.meter.flush()
    bench.meter.flush()
    assert bench.ear.said == []


def test_a_window_closes_before_the_losses_that_wait_grow_many() -> None:
    bench = Bench()
    bench.steps(*[1.0] * (WIDEST + 1))
    assert [window.steps for window in bench.ear.windows] == [WIDEST]


def test_no_window_crosses_the_end_of_warm_up() -> None:
    bench = Bench(window_s=4 * STEP_S, warmup_until=6)
    bench.steps(*[1.0] * 12)
    bench.meter.flush()
    said = [(window.step, window.steps, window.warmup) for window in bench.ear.windows]
    assert said == [(4, 4, True), (6, 2, True), (10, 4, False), (12, 2, False)]


def test_without_warm_up_every_window_counts() -> None:
    bench = Bench(window_s=STEP_S)
    bench.steps(1.0, 1.0)
    assert [window.warmup for window in bench.ear.windows] == [False, False]


def test_what_happens_between_two_windows_is_in_none() -> None:
    # given steps, then an evaluation of 100 seconds, then steps
    bench = Bench()
    bench.steps(1.0)
    bench.meter.flush()
    bench.clock.now += 100
    bench.meter.begin()
    bench.steps(1.0)
    bench.meter.flush()
    # then no window has seen it
    assert [window.seconds for window in bench.ear.windows] == [STEP_S, STEP_S]


def test_micro_batches_are_weighed_by_their_samples() -> None:
    bench = Bench()
    bench.one([1.0, 4.0], [3, 1])
    bench.meter.flush()
    [window] = bench.ear.windows
    assert (window.samples, window.loss_sum, window.steps) == (4, 7.0, 1)


def test_a_micro_batch_that_stands_in_is_not_seen() -> None:
    bench = Bench()
    bench.one([2.0, 1000.0], [3, 0])
    bench.meter.flush()
    [window] = bench.ear.windows
    assert (window.samples, window.loss_sum, window.loss_max) == (3, 6.0, 2.0)


def test_a_rank_without_a_sample_in_a_window_has_no_loss_but_a_sum() -> None:
    bench = Bench()
    bench.one([1000.0], [0])
    bench.meter.flush()
    [window] = bench.ear.windows
    assert (window.samples, window.loss_sum, window.loss_min) == (0, 0.0, None)


def test_skipped_steps_are_counted() -> None:
    bench = Bench()
    bench.steps(1.0, 1.0, skipped=1.0)
    bench.steps(1.0, skipped=0.0)
    bench.meter.flush()
    [window] = bench.ear.windows
    assert (window.steps, window.skipped, window.loss_sum) == (3, 2, 12.0)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_is_said_with_its_step_before_the_window(loss: str) -> None:
    bench = Bench()
    bench.steps(1.0)
    bench.meter.flush()
    bench.meter.begin()
    bench.steps(1.0, 1.0, float(loss), float("nan"), 1.0)
    bench.meter.flush()
    _, cry, window = bench.ear.said
    assert isinstance(cry, NonFinite)
    assert (cry.rank, cry.step, cry.loss) == (2, 4, loss)
    assert isinstance(window, Window)
    assert (window.loss_sum, window.loss_min, window.loss_max) == (None, None, None)
    assert (window.steps, window.samples) == (5, 20)
    assert not bench.meter.finite


def test_the_step_of_a_bad_micro_batch_is_found() -> None:
    bench = Bench()
    for _ in range(3):
        bench.one([1.0, 1.0], [2, 2])
    bench.one([1.0, float("nan")], [2, 2])
    bench.meter.flush()
    assert [cry.step for cry in bench.ear.cries] == [4]


def test_a_stand_in_that_is_not_finite_neither_counts_nor_moves_the_step() -> None:
    bench = Bench()
    bench.one([1.0, float("nan")], [1, 0])
    bench.meter.flush()
    assert bench.meter.finite
    assert bench.ear.cries == []
    bench.meter.begin()
    bench.one([1.0, float("nan")], [1, 0])
    bench.one([float("inf"), 1.0], [1, 1])
    bench.meter.flush()
    assert [(cry.step, cry.loss) for cry in bench.ear.cries] == [(3, "inf")]


def test_merged_windows_equal_one_that_was_never_cut() -> None:
    losses = [0.5, 2.0, 1.25, 0.75, 3.0, 1.0]
    cut, whole = Bench(window_s=STEP_S), Bench()
    for bench in (cut, whole):
        bench.steps(*losses, skipped=1.0)
        bench.meter.flush()
    first, *rest = cut.ear.windows
    assert len(rest) == 5
    for window in rest:
        first = first.merged(window)
    [expected] = whole.ear.windows
    fields = set(Window.__struct_fields__) - {"time"}
    assert {f: getattr(first, f) for f in fields} == {f: getattr(expected, f) for f in fields}


def test_a_reading_that_is_late_is_said_when_it_is_ready_and_in_order() -> None:
    # given a device whose time stamps come late
    class Late(Ready):
        there = False

        def is_ready(self) -> bool:
            return self.there

    pending: list[Late] = []

    class LateClock(HandClock):
        def close(self) -> Ready:
            pending.append(Late(super().close().reading))
            return pending[-1]

    bench = Bench()
    clock = LateClock()
    bench.clock, bench.meter = clock, Meter(bench.ear, 2, clock, STEP_S, 0)
    bench.meter.begin()
    # when windows close before, then nothing is said
    bench.steps(1.0, 2.0)
    assert bench.ear.windows == []
    # when the second is there before the first, the first still goes before it
    pending[1].there = True
    bench.steps(3.0)
    assert bench.ear.windows == []
    pending[0].there = True
    bench.steps(4.0)
    assert [window.step for window in bench.ear.windows] == [1, 2]
    # and a flush waits for the rest
    bench.meter.flush()
    assert [window.loss_sum for window in bench.ear.windows] == [4.0, 8.0, 12.0, 16.0]


def test_losses_are_fetched_before_the_last_stamp_of_their_window() -> None:
    # On a GPU the stamp's being ready is what tells that the losses are.
    order: list[str] = []

    class Loss(torch.Tensor):
        is_cpu = False

        @classmethod
        def __torch_function__(cls, function: Any, *rest: Any) -> Any:
            if function is torch.stack:
                order.append("losses")
            return super().__torch_function__(function, *rest)

    class Noting(HandClock):
        def close(self) -> Ready:
            order.append("stamp")
            return super().close()

    meter = Meter(Ear(), 0, Noting(), 1e9, 0)
    meter.begin()
    meter.loss(torch.tensor(1.0).as_subclass(Loss), 1)
    meter.step(0, 1, 0.1, None)
    meter.flush()
    assert order == ["losses", "stamp"]


def test_the_cpu_clock_gives_every_moment_to_one_phase() -> None:
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


def test_communication_lies_beside_the_phases() -> None:
    clock = CpuClock()
    clock.start()
    # given two steps of two buckets each, gradients complete at 3 and at 13
    clock.communicated([(1.0, 2.0), (2.5, 4.0)], until=3.0)
    clock.communicated([(11.0, 15.0), (12.0, 14.0)], until=13.0)
    reading = clock.close().get()
    # then what lies before that was hidden, counted once where buckets travel side by side
    assert reading.overlap == 1.5 + 2.0
    # and a rank waited as long as its first bucket took
    assert reading.wait == 1.0 + 4.0
    assert sum(reading.phases.values()) == 0


def test_an_all_reduce_after_backward_hides_nothing() -> None:
    clock = CpuClock()
    clock.start()
    clock.communicated([(1.0, 2.0), (2.0, 5.0)])
    clock.communicated([])
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
    ids=["one", "with a gap", "within each other", "too late"],
)
def test_hidden_is_what_lies_before_the_last_gradient(
    spans: list[tuple[float, float]], seconds: float
) -> None:
    assert hidden(spans, 3.0) == seconds


def test_a_failure_keeps_the_steps_before_it() -> None:
    bench = Bench()
    bench.steps(2.0, 2.0)
    bench.meter.loss(torch.tensor(9.0), 4)  # and then its backward fails
    bench.meter.give_up()
    [window] = bench.ear.windows
    assert (window.step, window.steps, window.samples, window.loss_sum) == (2, 2, 8, 16.0)
