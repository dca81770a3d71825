"""A script's training loop: what was noted of it is replayed once per window."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distrain.runners.distributed.timing import Stamp
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.loop_events import LoopEvents, UsualSteps
from distrain.runners.instrumentation.loop_timer import BETWEEN_LOOPS, LoopTimer
from distrain.runners.instrumentation.step_counter import CALLS, OPTIMIZER, StepCounter

MOST_EVENTS = 2_000  # that are noted before they are replayed


class TrainingLoop:
    """Counts and measures a training loop from its events, whose times are of `stamp()`.

    Steps of the optimizer need not be replayed before `due`.
    """

    def __init__(self) -> None:
        self.counter = StepCounter()
        self.timer = LoopTimer()
        self.events = LoopEvents()  # always this object
        self.note = self.events.note
        self.stamp: Callable[[], Stamp] = time.perf_counter
        self.noted_steps = 0  # that will count when they are replayed
        self.certain_kind = 0  # steps of this kind will count then, those of others may not
        self.named_phases: set[str] = set()
        self.due = 0.0
        self.rate: Any = None  # of the last step; may be a tensor
        self._handlers = (  # in the order of the kinds of events
            self._wait,
            self._evaluate,
            self._end,
            self._leave_source,
            self._backward,
            self._step_optimizer,
            self._step,
            self._enter,
            self._leave,
            self._step_as_usual,
        )

    @property
    def steps(self) -> int:
        return self.counter.steps + self.noted_steps

    def use_cuda(self, device: int) -> None:
        """Take stamps from this device from now on."""
        self.replay()
        self.timer.use_cuda(device)
        self.stamp = self.timer.stamp
        self.events.take()

    def limit(self) -> None:
        """Replay what was noted if it is much: there may be no step that does."""
        if len(self.events.others) >= MOST_EVENTS:
            self.replay()

    def replay(self) -> None:
        """Count and measure what was noted."""
        self.noted_steps = 0
        handlers = self._handlers
        for kind, begin, end, extra in self.events.take():
            try:
                handlers[kind](begin, end, extra)
            except Exception:  # the other events are replayed nevertheless
                problems.print_first()
        counter = self.counter
        self.certain_kind = 0 if counter.is_behind else counter.kind
        if self.certain_kind == OPTIMIZER and counter.is_settled and not self.timer.uses_cuda:
            self.events.begin_usual(counter.reading)

    def _wait(self, begin: Stamp, end: Stamp, batch: tuple[object, int | None]) -> None:
        self.timer.wait(begin, end)
        self.counter.add_batch(*batch)

    def _evaluate(self, begin: Stamp, end: Stamp, batch: tuple[object, int | None]) -> None:
        self.timer.evaluate(begin, end)
        if batch[0] is not None:
            self.counter.add_batch(*batch, may_train=False)

    def _end(self, begin: Stamp | None, end: Stamp, source: object) -> None:
        self.counter.end_source(source, was_read_to_end=True)
        if begin is None:
            self.timer.end_evaluation(end)
        else:
            self.timer.wait(begin, end)
            self.timer.pause(BETWEEN_LOOPS, end)

    def _leave_source(self, begin: None, end: Stamp | None, source: object) -> None:
        self.counter.end_source(source, was_read_to_end=False)
        if end is not None:
            self.timer.pause(BETWEEN_LOOPS, end)

    def _backward(self, begin: Stamp, end: Stamp, extra: None) -> None:
        self.timer.backward(begin, end)
        self.counter.add_backward()

    def _step_optimizer(self, begin: None, end: Stamp, extra: tuple[int, Any, int]) -> None:
        self.timer.optimizer(end)
        steps, rate, optimizer = extra
        if steps:
            self.rate = rate
            self.counter.finish_step(OPTIMIZER, times=steps, optimizer=optimizer)
        else:
            self.counter.add_other_step(optimizer)

    def _step_as_usual(self, begin: float, end: float, steps: UsualSteps) -> None:
        """Replay several steps as one long step, which gives the same sums."""
        forward = begin + steps.wait
        backward = forward + steps.forward
        self._wait(begin, forward, (steps.source, steps.samples))
        self._backward(backward, backward + steps.backward, None)
        self.timer.own_step(backward + steps.backward + steps.between)
        self._step_optimizer(None, end, (steps.steps, steps.rate, 0))

    def _step(self, begin: None, end: Stamp, extra: tuple[int, int | None]) -> None:
        if extra[0] == CALLS:
            self.timer.own_step(end)
        self.counter.finish_step(*extra)

    def _enter(self, begin: Stamp, end: None, phase: str) -> None:
        self.named_phases.add(phase)
        self.timer.enter(phase, begin)

    def _leave(self, begin: Stamp, end: None, phase: str) -> None:
        self.timer.leave(begin)
