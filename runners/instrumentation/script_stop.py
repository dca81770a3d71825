"""How a script that asks whether to stop takes part in a stop."""

from __future__ import annotations

import math
import time
from typing import Literal

from distrain.runners.protocol.events import Phase, StopSupport
from distrain.runners.protocol.reporter import NullReporter, Reporter


class ScriptStop:
    """Answers `distrain.should_stop`, and reports what the program does then.

    `calls` is how often it has asked. `is_stopped` is true once the answer was to stop: the program
    counts as saving from then on, until it finishes further steps.
    """

    def __init__(self, reporter: Reporter | NullReporter, rank: int) -> None:
        self._reporter = reporter
        self._rank = rank
        self._last_step = math.inf  # steps after this one show that the program trains on
        self.calls = 0
        self.is_stopped = False

    def ask(self, steps: int) -> bool:
        """Return whether to leave the loop after so many steps. Once True, it stays so."""
        if self.is_stopped:
            return True
        self.calls += 1
        if self.calls == 1:
            self._reporter.send(StopSupport(rank=self._rank))
        self.is_stopped = not self._reporter.should_continue(self.calls)
        if self.is_stopped:
            self._last_step = steps + 1  # it may ask before the end of its step
            self._begin("saving")
        return self.is_stopped

    def note_steps(self, steps: int) -> None:
        """Note how many steps are finished."""
        if steps > self._last_step:
            self._last_step = math.inf
            self._begin("running")

    def _begin(self, phase: Literal["saving", "running"]) -> None:
        self._reporter.send(Phase(time=time.time(), rank=self._rank, phase=phase))
