"""Signals while a run is looked at: heard and kept, for the viewer to answer in its own time."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Signals:
    """Counts Ctrl-C and notes that the terminal went away or somebody ends us."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended_by: int | None = None

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, self._heard) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupts += 1
        else:
            self.ended_by = number
