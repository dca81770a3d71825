"""Given any order of events, when usual steps are added up, then it is as if each were noted."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from distrain.runners.distributed import timing
from distrain.runners.instrumentation.loop_events import (
    END,
    ENTER,
    EVALUATION,
    LEAVE,
    LEFT,
    OWN_STEP,
    USUAL_STEPS,
)
from distrain.runners.instrumentation.step_counter import CALLS, OPTIMIZER
from distrain.runners.instrumentation.training_loop import TrainingLoop

Figures = tuple[int, "int | None", bool, dict[str, float], object]


class _Driver:
    """Sends a loop events with a clock of its own, and collects its windows."""

    def __init__(self, seed: int, *, adds_up: bool) -> None:
        self.loop = TrainingLoop()
        self.adds_up = adds_up
        self.random = random.Random(seed)
        self.now = 100.0
        self.source = object()
        self.figures: list[Figures] = []

    def later(self) -> float:
        self.now += self.random.randrange(1, 64) / 1024
        return self.now

    def batch(self) -> None:
        samples = self.random.choice([4] * 20 + [2, None])
        self.loop.events.note_batch(self.later(), self.later(), self.source, samples)

    def backward(self) -> None:
        self.loop.events.note_backward(self.later(), self.later())

    def step(self) -> None:
        self.loop.events.note_step(self.later(), 0.125)

    def usual_step(self) -> None:
        self.batch()
        self.backward()
        self.step()

    def evaluation(self) -> None:
        self.loop.note((EVALUATION, self.later(), self.later(), (None, 8)))
        self.loop.note((END, None, self.later(), None))

    def next_epoch(self) -> None:
        self.loop.note((END, self.later(), self.later(), self.source))
        self.source = object()

    def left(self) -> None:
        self.loop.note((LEFT, None, None, self.source))
        self.source = object()

    def phase(self) -> None:
        self.loop.note((ENTER, self.later(), None, "comm"))
        self.random.choice([self.backward, self.usual_step, self.batch])()
        self.loop.note((LEAVE, self.later(), None, "comm"))

    def own_step(self) -> None:
        self.loop.note((OWN_STEP, None, self.later(), (CALLS, 16)))

    def window(self) -> None:
        loop = self.loop
        loop.replay()
        if not self.adds_up:
            loop.events.take()  # which ends a sum that has no steps
        if loop.counter.unreported and (reading := loop.timer.close()):
            steps, samples = loop.counter.take()
            known = loop.counter.samples_are_known
            self.figures.append((steps, samples, known, reading.get().phases, loop.rate))

    def run(self) -> list[Figures]:
        seldom: list[Callable[[], None]] = [
            self.batch, self.backward, self.step, self.evaluation, self.next_epoch, self.left,
            self.phase,
        ]  # fmt: skip
        for _ in range(150):
            draw = self.random.random()
            if draw < 0.85:
                self.usual_step()
            elif draw < 0.93:
                self.window()
            else:
                self.random.choice(seldom)()
        if self.random.random() < 0.2:
            self.own_step()
        self.window()
        return self.figures


@pytest.mark.parametrize("seed", range(100))
def test_sums_are_those_of_single_events(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for adds_up in (True, False):
        driver = _Driver(seed, adds_up=adds_up)
        monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda of=driver: of.now))
        found.append(driver.run())
    added, noted = found
    assert [one[:3] for one in added] == [one[:3] for one in noted]
    assert [one[4] for one in added] == [one[4] for one in noted]
    for one, other in zip(added, noted, strict=True):
        assert one[3] == pytest.approx(other[3], abs=1e-9)


def test_usual_steps_take_no_memory_each() -> None:
    driver = _Driver(0, adds_up=True)
    driver.random.choice = lambda _: 4  # type: ignore[method-assign, assignment]
    driver.usual_step()
    driver.window()
    for _ in range(1000):
        driver.usual_step()
    assert not driver.loop.events.others
    assert driver.loop.certain_kind == OPTIMIZER
    assert [event[0] for event in driver.loop.events.take()] == [USUAL_STEPS]
