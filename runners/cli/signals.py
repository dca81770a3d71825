"""Signals to the command line, counted until the command can act on them."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Self


class Signals:
    """Counts Ctrl-C, and keeps the number of a SIGTERM or SIGHUP, while its block is entered.

    To the first process of a container, SIGTERM is a Ctrl-C: when it ends, the run is killed too.
    """

    def __init__(self) -> None:
        self.interrupts = 0
        self.ended_by: int | None = None  # SIGTERM, or SIGHUP of a closed terminal
        self.is_detached = False  # set it once another Ctrl-C changes nothing, also after the block

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._receive) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what signals did; after a Ctrl-C, another one ends the process with code 130."""
        if self.is_detached:
            self._previous[signal.SIGINT] = signal.SIG_IGN
        elif self.interrupts:
            self._previous[signal.SIGINT] = lambda *_: os._exit(128 + signal.SIGINT)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT or (number == signal.SIGTERM and os.getpid() == 1):
            self.interrupts += 1
        else:
            self.ended_by = number
