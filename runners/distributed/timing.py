"""Measurement of a rank's time: phases that follow each other, and the communication in them.

`cuda_timing` has the clock of a CUDA device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from distrain.runners.protocol.events import OTHER, PHASES

if TYPE_CHECKING:  # a script that does not use torch has its time measured too
    import torch

Stamp: TypeAlias = "float | torch.cuda.Event"
AllReduceSpan = tuple[Any, Any]
"""Two stamps: this rank arrives at an all-reduce; the all-reduce ends."""


def _empty_phases() -> dict[str, float]:
    return dict.fromkeys((*PHASES, OTHER), 0.0)


@dataclass
class ClockReading:
    """Seconds of one window, ready immediately on CPU and one window later on CUDA.

    `overlap` and `wait` are sums over the steps; `Clock.add_all_reduces` defines them.
    """

    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=_empty_phases)
    overlap: float = 0.0
    wait: float = 0.0


class Clock(Protocol):
    """Measures one window after another on the device of this rank."""

    def start(self, at: Stamp | None = None) -> None:
        """Begin a window now or at a stamp. The time since the last one closed belongs to none."""

    def stamp(self) -> Stamp:
        """Return this moment on the device's time line."""

    def mark(self, phase: str, at: Stamp | None = None) -> None:
        """End the phase now, or at an earlier stamp; the next phase begins at that moment."""

    def skip(self, at: Stamp | None = None) -> None:
        """Leave the time since the last mark out of the window, up to now or to a stamp."""

    def add_all_reduces(self, spans: Sequence[AllReduceSpan], until: Stamp | None = None) -> None:
        """Add the all-reduces of one step, in the order in which this rank arrived at them.

        The part before `until`, the end of backward, counts as overlap. The duration of the
        first one counts as wait: the time from this rank's arrival to the end.
        """

    def end_step(self) -> None:
        """Note the end of a step, whose last phase was marked. Without this every mark counts."""

    def elapsed(self) -> float:
        """Return the host seconds of the window, at least up to the last mark."""

    def close(self) -> PendingReading:
        """End the window; the next one begins at the same moment."""


class PendingReading(Protocol):
    """The reading of a closed window, which may still have to arrive from the device."""

    def is_ready(self) -> bool:
        """Return whether `get` would return without waiting."""

    def get(self) -> ClockReading:
        """Return the reading; wait for the device if need be."""


def covered_seconds(spans: Iterable[tuple[float, float]], until: float) -> float:
    """Return the seconds before `until` that at least one span covers.

    The spans must be in the order of their begin.
    """
    total = 0.0
    reached = -math.inf
    for begin, end in spans:
        first = max(begin, reached)
        last = min(end, until)
        if last > first:
            total += last - first
            reached = last
    return total


class CpuClock:
    """Reads the host's clock: on CPU every operation has ended when its call returns."""

    def start(self, at: Stamp | None = None) -> None:
        now: Any = time.perf_counter() if at is None else at
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._reading = ClockReading()
        self._phases = self._reading.phases
        self._began = self._last = now

    def stamp(self) -> float:
        return time.perf_counter()

    def mark(self, phase: str, at: Stamp | None = None) -> None:
        now: Any = time.perf_counter() if at is None else at
        self._phases[phase] += now - self._last
        self._last = now

    def skip(self, at: Stamp | None = None) -> None:
        now: Any = time.perf_counter() if at is None else at
        self._began += now - self._last
        self._last = now

    def add_all_reduces(self, spans: Sequence[AllReduceSpan], until: Stamp | None = None) -> None:
        if spans:
            begin, end = spans[0]
            self._reading.wait += end - begin
            if until is not None:
                assert isinstance(until, float)
                self._reading.overlap += covered_seconds(spans, until)

    def end_step(self) -> None:
        pass

    def elapsed(self) -> float:
        return self._last - self._began

    def close(self) -> PendingReading:
        now = time.perf_counter()
        reading = self._reading
        reading.seconds = now - self._began
        self._begin(now)
        return CpuReading(reading)


@dataclass
class CpuReading:
    """A reading that is complete when its window closes."""

    reading: ClockReading

    def is_ready(self) -> bool:
        return True

    def get(self) -> ClockReading:
        return self.reading
