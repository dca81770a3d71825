"""Where a rank's seconds go: phases end to end, and what communication lies behind them. On CUDA
all is read off the device's own time line, a window late, without a wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from runners.events import OTHER, PHASES

Stamp = float | torch.cuda.Event
Span = tuple[Any, Any]  # two stamps: this rank arrives at an all-reduce, and it ends


def no_time() -> dict[str, float]:
    return dict.fromkeys((*PHASES, OTHER), 0.0)


@dataclass
class Reading:
    """Seconds of one window, ready at once on CPU and a window later on CUDA.

    `overlap` and `wait` are those of `Clock.communicated`, added up over steps.
    """

    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=no_time)
    overlap: float = 0.0
    wait: float = 0.0


class Clock(Protocol):
    def start(self) -> None:
        """A window begins now; the time since the last one closed is in none."""

    def stamp(self) -> Stamp: ...
    def mark(self, phase: str, at: Stamp | None = None) -> None:
        """The phase ends now, or at a stamp taken before; the next one begins there."""

    def communicated(self, spans: Sequence[Span], until: Stamp | None = None) -> None:
        """The step's all-reduces, in the order in which this rank came to them.

        What of them lies before `until` was hidden behind backward and counts as overlap; the
        first one's length is how long this rank waited from its arrival.
        """

    def elapsed(self) -> float:
        """Host seconds of the window, up to the last mark at least."""

    def close(self) -> PendingReading:
        """The window ends, and the next one begins at the same moment."""


class PendingReading(Protocol):
    def is_ready(self) -> bool: ...
    def get(self) -> Reading: ...


def hidden(spans: Iterable[tuple[float, float]], until: float) -> float:
    """Seconds before `until` in which one span at least was under way; they begin in order."""
    total, reached = 0.0, -math.inf
    for begin, end in spans:
        first, last = max(begin, reached), min(end, until)
        if last > first:
            total, reached = total + last - first, last
    return total


class CpuClock:
    def start(self) -> None:
        self._begin(time.perf_counter())

    def _begin(self, now: float) -> None:
        self._reading = Reading()
        self._phases = self._reading.phases
        self._began = self._last = now

    def stamp(self) -> float:
        return time.perf_counter()

    def mark(self, phase: str, at: Stamp | None = None) -> None:
        now: Any = time.perf_counter() if at is None else at
        self._phases[phase] += now - self._last
        self._last = now

    def communicated(self, spans: Sequence[Span], until: Stamp | None = None) -> None:
        if spans:
            begin, end = spans[0]
            self._reading.wait += end - begin
            if until is not None:
                assert isinstance(until, float)
                self._reading.overlap += hidden(spans, until)

    def elapsed(self) -> float:
        return self._last - self._began

    def close(self) -> PendingReading:
        now, reading = time.perf_counter(), self._reading
        reading.seconds = now - self._began
        self._begin(now)
        return Ready(reading)


@dataclass
class Ready:
    reading: Reading

    def is_ready(self) -> bool:
        return True

    def get(self) -> Reading:
        return self.reading


class CudaClock:
    """Events of the current device, read once the last of a window has passed."""

    def __init__(self) -> None:
        self._device = torch.cuda.current_device()

    def start(self) -> None:
        self._begin(self.stamp())

    def _begin(self, first: torch.cuda.Event) -> None:
        self._began, self._first = time.perf_counter(), first
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self._steps: list[tuple[Sequence[Span], Stamp | None]] = []

    def stamp(self) -> torch.cuda.Event:
        """On the thread's own stream; the device is named, for a callback's thread has no own."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def mark(self, phase: str, at: Stamp | None = None) -> None:
        event = self.stamp() if at is None else at
        assert isinstance(event, torch.cuda.Event)
        self._marks.append((phase, event))

    def communicated(self, spans: Sequence[Span], until: Stamp | None = None) -> None:
        if spans:
            self._steps.append((spans, until))

    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def close(self) -> PendingReading:
        last = self.stamp()
        reading = OnDevice(self._first, self._marks, self._steps, last)
        self._begin(last)
        return reading


@dataclass
class OnDevice:
    first: torch.cuda.Event
    marks: list[tuple[str, torch.cuda.Event]]
    steps: list[tuple[Sequence[Span], Any]]
    last: torch.cuda.Event

    def is_ready(self) -> bool:
        return bool(self.last.query())

    def get(self) -> Reading:
        reading, previous = Reading(), self.first
        self.last.synchronize()
        for phase, event in self.marks:
            reading.phases[phase] += previous.elapsed_time(event) / 1000
            previous = event
        for spans, until in self.steps:
            self._add_step(reading, spans, until)
        reading.seconds = self._at(self.last)
        return reading

    def _add_step(self, reading: Reading, spans: Sequence[Span], until: Any) -> None:
        seconds = [(self._at(begin), self._at(end)) for begin, end in spans]
        reading.wait += seconds[0][1] - seconds[0][0]
        if until is not None:
            reading.overlap += hidden(seconds, self._at(until))

    def _at(self, event: torch.cuda.Event) -> float:
        return float(self.first.elapsed_time(event)) / 1000


def clock_for(device: torch.device) -> Clock:
    return CudaClock() if device.type == "cuda" else CpuClock()
