"""The clock of a CUDA device, which reads the times of the device's own events.

They are read one window later, so that the rank never waits for its device. An event costs the host
some microseconds, so the phases of short steps are measured in some of them only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from distrain.runners.distributed.timing import (
    AllReduceSpan,
    ClockReading,
    PendingReading,
    Stamp,
    covered_seconds,
)
from distrain.runners.protocol.events import OTHER, PHASES

# Between two marks: time that belongs to no window, and steps without marks.
SKIPPED, UNMEASURED = "skipped", "unmeasured"
PACE_S = 0.005  # from one measured step to the next


class CudaClock:
    """Records events of a CUDA device, which are read after it has passed the last of a window.

    Of steps shorter than `PACE_S` it measures the first of a window and then one in several; what
    it finds counts for all of them. The seconds of a window are exact.
    """

    def __init__(self, device: int | None = None) -> None:
        self._cuda = torch.cuda
        self._device = torch.cuda.current_device() if device is None else device
        self._free: list[torch.cuda.Event] = []  # those that were read, to be recorded again
        self._stride = 1  # steps from one that is measured to the next
        self._is_measured = True

    def start(self, at: Stamp | None = None) -> None:
        first: Any = self._record() if at is None else at
        self._begin(first)

    def _begin(self, first: torch.cuda.Event) -> None:
        self._began = time.perf_counter()
        self._first = first
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self._all_reduces: list[tuple[Sequence[AllReduceSpan], Stamp | None]] = []
        self._steps = self._measured = 0
        self._is_measured = True

    def stamp(self) -> torch.cuda.Event:
        # The stamps of a step that is not measured are not used, so any event will do.
        return self._record() if self._is_measured else self._first

    def _record(self) -> torch.cuda.Event:
        # The device is explicit, because a callback's thread has no current one.
        try:
            event = self._free.pop()
        except IndexError:
            event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def mark(self, phase: str, at: Stamp | None = None) -> None:
        if self._is_measured:
            event = self._record() if at is None else at
            assert not isinstance(event, float)
            self._marks.append((phase, event))

    def skip(self, at: Stamp | None = None) -> None:
        self.mark(SKIPPED, at)

    def add_all_reduces(self, spans: Sequence[AllReduceSpan], until: Stamp | None = None) -> None:
        if spans and self._is_measured:
            self._all_reduces.append((spans, until))

    def end_step(self) -> None:
        self._steps += 1
        self._measured += self._is_measured
        was_measured = self._is_measured
        self._is_measured = self._steps % self._stride == 0
        if self._is_measured and not was_measured:
            self._marks.append((UNMEASURED, self._record()))

    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def close(self) -> PendingReading:
        last = self._record()
        steps_per_measured = self._steps / self._measured if self._measured else 1.0
        reading = CudaReading(
            self._first, self._marks, self._all_reduces, last, self._free, steps_per_measured
        )
        if self._steps:
            self._stride = math.ceil(PACE_S * self._steps / max(self.elapsed(), PACE_S))
        self._begin(last)
        return reading


@dataclass
class CudaReading:
    """Events of a closed window, which the device may still have to reach."""

    first: torch.cuda.Event
    marks: list[tuple[str, torch.cuda.Event]]
    all_reduces: list[tuple[Sequence[AllReduceSpan], Any]]
    last: torch.cuda.Event
    free: list[torch.cuda.Event]
    """Where events are put that are not needed any more."""
    steps_per_measured: float = 1.0

    def is_ready(self) -> bool:
        return bool(self.last.query())

    def get(self) -> ClockReading:
        reading = ClockReading()
        previous = self.first
        self.last.synchronize()
        skipped = 0.0
        for phase, event in self.marks:
            seconds = previous.elapsed_time(event) / 1000
            previous = event
            if phase == SKIPPED:
                skipped += seconds
            elif phase != UNMEASURED:
                reading.phases[phase] += seconds
        for spans, until in self.all_reduces:
            self._add_step(reading, spans, until)
        reading.seconds = self._seconds_at(self.last) - skipped
        if self.steps_per_measured > 1:
            self._scale(reading)
        self.free += {event for _, event in self.marks}  # one may have ended several phases
        return reading

    def _add_step(self, reading: ClockReading, spans: Sequence[AllReduceSpan], until: Any) -> None:
        seconds = [(self._seconds_at(begin), self._seconds_at(end)) for begin, end in spans]
        reading.wait += seconds[0][1] - seconds[0][0]
        if until is not None:
            reading.overlap += covered_seconds(seconds, self._seconds_at(until))

    def _scale(self, reading: ClockReading) -> None:
        """Let the phases of the measured steps count for all; what is left is other time."""
        measured = sum(reading.phases.values()) - reading.phases[OTHER]
        most = reading.seconds / measured if measured else 1.0
        factor = min(self.steps_per_measured, most)
        for phase in PHASES:
            reading.phases[phase] *= factor
        reading.phases[OTHER] = max(0.0, reading.seconds - factor * measured)
        reading.overlap *= factor
        reading.wait *= factor

    def _seconds_at(self, event: torch.cuda.Event) -> float:
        return float(self.first.elapsed_time(event)) / 1000
