"""A script's training loop: what is noted of it step by step, and replayed once per window.

Noting an event must be cheap, as it happens several times in a step that may take less than a
millisecond. So hooks and calls only append to a list; what the events mean is worked out later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distrain.runners.distributed.timing import Stamp
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.loop_timer import BETWEEN_LOOPS, EVALUATION, LoopTimer
from distrain.runners.instrumentation.step_counter import CALLS, OPTIMIZER, StepCounter

Noted = tuple[int, Any, Any, Any]
MOST_EVENTS = 2_000  # that are noted before they are replayed


class TrainingLoop:
    """Events of a training loop: `note((kind, begin, end, extra))`, in their order.

    `begin` and `end` are of `stamp()`. Steps of the optimizer need not be replayed before `due`.

    | kind | extra |
    | --- | --- |
    | BATCH: a wait for training data | its source, samples |
    | EVALUATION: a batch that is not trained with | its source or None, samples |
    | END: the source of an evaluation, or with a `begin` of training data, has ended | the source |
    | LEFT: the program has dropped a source, and with an `end` its training loop | the source |
    | BACKWARD: a backward pass | None |
    | OPTIMIZER_STEP: ends at `end` | whether it counts, its learning rate |
    | OWN_STEP: ends at `end` | its kind, and samples |
    | ENTER, LEAVE: a phase that the script names, at `begin` | the phase |
    """

    BATCH, EVALUATION, END, LEFT, BACKWARD, OPTIMIZER_STEP, OWN_STEP, ENTER, LEAVE = range(9)

    def __init__(self) -> None:
        self.counter = StepCounter()
        self.timer = LoopTimer()
        self.events: list[Noted] = []  # always this list
        self.note = self.events.append
        self.stamp: Callable[[], Stamp] = time.perf_counter
        self.noted_steps = 0  # that will count when they are replayed
        self.certain_kind = 0  # steps of this kind will count then, those of others may not
        self.named_phases: set[str] = set()
        self.due = 0.0
        self.rate: Any = None  # of the last step; may be a tensor
        self._handlers = (
            self._wait,
            self._evaluate,
            self._end,
            self._leave_source,
            self._backward,
            self._step_optimizer,
            self._step,
            self._enter,
            self._leave,
        )

    @property
    def steps(self) -> int:
        return self.counter.steps + self.noted_steps

    def use_cuda(self, device: int) -> None:
        """Take stamps from this device from now on."""
        self.replay()
        self.timer.use_cuda(device)
        self.stamp = self.timer.stamp

    def limit(self) -> None:
        """Replay what was noted if it is much: there may be no step that does."""
        if len(self.events) >= MOST_EVENTS:
            self.replay()

    def replay(self) -> None:
        """Count and measure what was noted."""
        count = len(self.events)
        events = self.events[:count]
        del self.events[:count]  # no more: other threads may append to it
        self.noted_steps = 0
        handlers = self._handlers
        for kind, begin, end, extra in events:
            try:
                handlers[kind](begin, end, extra)
            except Exception:  # the other events are replayed nevertheless
                problems.print_first()
        self.certain_kind = 0 if self.counter.is_behind else self.counter.kind

    def _wait(self, begin: Stamp, end: Stamp, batch: tuple[object, int | None]) -> None:
        self.timer.wait(begin, end)
        self.counter.add_batch(*batch)

    def _evaluate(self, begin: Stamp, end: Stamp, batch: tuple[object, int | None]) -> None:
        self.timer.pause(EVALUATION, begin)
        if batch[0] is not None:
            self.counter.add_batch(*batch)

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

    def _step_optimizer(self, begin: None, end: Stamp, extra: tuple[bool, Any]) -> None:
        self.timer.optimizer(end)
        counts, rate = extra
        if counts:
            self.rate = rate
            self.counter.finish_step(OPTIMIZER)

    def _step(self, begin: None, end: Stamp, extra: tuple[int, int | None]) -> None:
        if extra[0] == CALLS:
            self.timer.own_step(end)
        self.counter.finish_step(*extra)

    def _enter(self, begin: Stamp, end: None, phase: str) -> None:
        self.named_phases.add(phase)
        self.timer.enter(phase, begin)

    def _leave(self, begin: Stamp, end: None, phase: str) -> None:
        self.timer.leave(begin)
