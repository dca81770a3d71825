"""Where the time of a script's training loop goes: phases, from events with stamps of a clock.

The clock is the host's, or that of the CUDA device that the script trains on. What lies between two
training loops, and evaluations that are recognised as such, belong to no window.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from distrain.runners.distributed.timing import Clock, CpuClock, CudaClock, PendingReading, Stamp
from distrain.runners.protocol.events import OTHER

BETWEEN_LOOPS, EVALUATION = "between loops", "evaluation"


class LoopTimer:
    """Divides time into phases by marks, each of which ends a phase and begins the next one.

    Time before the first event is not measured. While the script is in a phase of its own
    (`enter`), it goes to that phase whatever is observed.
    """

    def __init__(self) -> None:
        self._clock: Clock = CpuClock()
        self.has_started = False
        self.uses_cuda = False
        self._paused: str | None = None  # why
        self._own_phases: list[str] = []
        self._has_batch = False  # it came last: the forward pass begins
        self._has_gradients = False  # a backward pass came last

    @property
    def stamp(self) -> Callable[[], Stamp]:
        """The function that returns a stamp of this moment."""
        return self._clock.stamp if self.uses_cuda else time.perf_counter

    def use_cuda(self, device: int) -> None:
        """Measure from now on with events of this device, because the script trains on it."""
        self._clock = CudaClock(device)
        self.uses_cuda = True
        self.has_started = False

    # --- what is observed ----------------------------------------------------------------------

    def wait(self, begin: Stamp, end: Stamp) -> None:
        """Add the wait for a batch of the training data."""
        self._begin(begin, skips=True)
        self._mark("data", end)
        self._has_batch = True
        self._has_gradients = False

    def backward(self, begin: Stamp, end: Stamp) -> None:
        """Add a backward pass; the forward pass lies between a batch and its begin."""
        self._begin(begin, "forward" if self._has_batch else OTHER)
        self._mark("backward", end)
        self._has_batch = False
        self._has_gradients = True

    def optimizer(self, end: Stamp) -> None:
        """Add a step of an optimizer, with what lies between a backward pass and its end."""
        self._begin(end, "optimizer" if self._has_gradients else OTHER)
        self._has_batch = self._has_gradients = False

    def own_step(self, at: Stamp) -> None:
        """Add the end of a step that the script announces."""
        self._begin(at)

    def enter(self, phase: str, at: Stamp) -> None:
        """Begin a phase of the script, which may be within another one."""
        self._begin(at)
        self._has_batch = self._has_gradients = False
        self._own_phases.append(phase)

    def leave(self, at: Stamp) -> None:
        """End the innermost phase of the script."""
        self._begin(at)
        self._own_phases.pop()

    def pause(self, why: str, at: Stamp) -> None:
        """Leave out the time from now on, until training goes on."""
        if self.has_started and not self._paused:
            self._mark(OTHER, at)
            self._paused = why
            self._has_batch = self._has_gradients = False

    def end_evaluation(self, at: Stamp) -> None:
        if self._paused == EVALUATION:
            self._begin(at)

    def _begin(self, at: Stamp, phase: str = OTHER, *, skips: bool = False) -> None:
        """Mark the end of a phase; during a pause, its end: of an evaluation, or if it `skips`."""
        if not self.has_started:
            self.has_started = True
            self._clock.start(at)
        elif self._paused and (skips or self._paused == EVALUATION):
            self._clock.skip(at)
        else:
            self._mark(OTHER if self._paused else phase, at)
        self._paused = None

    def _mark(self, phase: str, at: Stamp) -> None:
        self._clock.mark(self._own_phases[-1] if self._own_phases else phase, at)

    # --- windows -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Leave out the time since the last mark, and what follows until training goes on."""
        if self.has_started:
            self._clock.skip()
            self._paused = BETWEEN_LOOPS
            self._has_batch = self._has_gradients = False

    def elapsed(self) -> float:
        """Return the seconds of the open window up to the last mark."""
        return self._clock.elapsed() if self.has_started else 0.0

    def close(self) -> PendingReading | None:
        """End the window, at the last mark during a pause; None if nothing was measured."""
        if not self.has_started:
            return None
        if self._paused:
            self._clock.skip()
        return self._clock.close()
