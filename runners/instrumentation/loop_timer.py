"""Where the time of a script's training loop goes: phases, from events with stamps of a clock.

The clock is the host's, or that of the CUDA device that the script trains on. What lies between two
training loops, and evaluations that are recognised as such, belong to no window.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from distrain.runners.distributed.timing import Clock, CpuClock, PendingReading, Stamp
from distrain.runners.protocol.events import OTHER

NOT_STARTED, BETWEEN_LOOPS, EVALUATION = "not started", "between loops", "evaluation"


class LoopTimer:
    """Divides time into phases by marks, each of which ends a phase and begins the next one.

    Time before the first event is not measured. While the script is in a phase of its own
    (`enter`), it goes to that phase whatever is observed.

    The methods for what is observed are called several times per step, so they share little code.
    """

    def __init__(self) -> None:
        self._clock: Clock = CpuClock()
        self._mark = self._clock.mark
        self.uses_cuda = False
        self._paused: str | None = NOT_STARTED  # why
        self._only_batch: Stamp | None = None  # the end of the only one read in the evaluation
        self._own_phases: list[str] = []
        self._own_phase = ""  # the innermost one
        self._has_batch = False  # it came last: the forward pass begins
        self._has_gradients = False  # a backward pass came last

    @property
    def stamp(self) -> Callable[[], Stamp]:
        """The function that returns a stamp of this moment."""
        return self._clock.stamp if self.uses_cuda else time.perf_counter

    def use_cuda(self, device: int) -> None:
        """Measure from now on with events of this device, because the script trains on it."""
        from distrain.runners.distributed.cuda_timing import CudaClock  # it imports torch

        self._clock = CudaClock(device)
        self._mark = self._clock.mark
        self.uses_cuda = True
        self._paused = NOT_STARTED

    # --- what is observed ----------------------------------------------------------------------

    def wait(self, begin: Stamp, end: Stamp) -> None:
        """Add the wait for a batch of the training data."""
        if self._paused:
            self._resume(begin, skips=True)
        else:
            self._mark(self._own_phase or OTHER, begin)
        self._mark(self._own_phase or "data", end)
        self._has_batch = True
        self._has_gradients = False

    def backward(self, begin: Stamp, end: Stamp) -> None:
        """Add a backward pass; the forward pass lies between a batch and its begin."""
        if self._paused == EVALUATION and self._only_batch is not None:
            self._train_with(self._only_batch)
        if self._paused:
            self._resume(begin)
        else:
            self._mark(self._own_phase or ("forward" if self._has_batch else OTHER), begin)
        self._mark(self._own_phase or "backward", end)
        self._has_batch = False
        self._has_gradients = True

    def optimizer(self, end: Stamp) -> None:
        """Add a step of an optimizer, with what lies between a backward pass and its end."""
        if self._paused:
            self._resume(end)
        else:
            self._mark(self._own_phase or ("optimizer" if self._has_gradients else OTHER), end)
        self._has_batch = self._has_gradients = False

    def own_step(self, at: Stamp) -> None:
        """Add the end of a step that the script announces."""
        if self._paused:
            self._resume(at)
        else:
            self._mark(self._own_phase or OTHER, at)

    def enter(self, phase: str, at: Stamp) -> None:
        """Begin a phase of the script, which may be within another one."""
        self.own_step(at)
        self._has_batch = self._has_gradients = False
        self._own_phases.append(phase)
        self._own_phase = phase

    def leave(self, at: Stamp) -> None:
        """End the innermost phase of the script."""
        self.own_step(at)
        self._own_phases.pop()
        self._own_phase = self._own_phases[-1] if self._own_phases else ""

    def evaluate(self, begin: Stamp, end: Stamp) -> None:
        """Add the wait for a batch that is not trained with, as far as is known by now."""
        is_first = not self._paused
        self.pause(EVALUATION, begin)
        self._only_batch = end if is_first else None

    def _train_with(self, batch: Stamp) -> None:
        """Take the evaluation for a wait, as a backward pass follows its only batch.

        So it is where a generator that reads the training data is decorated with `no_grad`.
        """
        self._mark(self._own_phase or "data", batch)
        self._paused = None
        self._has_batch = True

    def pause(self, why: str, at: Stamp) -> None:
        """Leave out the time from now on, until training goes on."""
        if not self._paused:
            self._mark(self._own_phase or OTHER, at)
            self._paused = why
            self._has_batch = self._has_gradients = False

    def end_evaluation(self, at: Stamp) -> None:
        if self._paused == EVALUATION:
            self._resume(at)

    def _resume(self, at: Stamp, *, skips: bool = False) -> None:
        """End a pause; its time is left out if it was an evaluation, or if training `skips` it."""
        if self._paused == NOT_STARTED:
            self._clock.start(at)
        elif skips or self._paused == EVALUATION:
            self._clock.skip(at)
        else:
            self._mark(self._own_phase or OTHER, at)
        self._paused = None

    # --- windows -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Leave out the time since the last mark, and what follows until training goes on."""
        if self._paused != NOT_STARTED:
            self._clock.skip()
            self._paused = BETWEEN_LOOPS
            self._has_batch = self._has_gradients = False

    def elapsed(self) -> float:
        """Return the seconds of the open window up to the last mark."""
        return 0.0 if self._paused == NOT_STARTED else self._clock.elapsed()

    def close(self) -> PendingReading | None:
        """End the window, at the last mark during a pause; None if nothing was measured."""
        if self._paused == NOT_STARTED:
            return None
        if self._paused:
            self._clock.skip()
            self._only_batch = None
        return self._clock.close()
