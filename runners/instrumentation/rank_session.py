"""What a program can ask of the run that it is a rank of."""

from __future__ import annotations

import os

from distrain.runners.protocol.events import StopSupport
from distrain.runners.protocol.reporter import NullReporter, Reporter


class RankSession:
    """A rank of a run, from inside its program."""

    def __init__(self, reporter: Reporter | NullReporter, rank: int) -> None:
        self._reporter = reporter
        self._rank = rank
        self.calls = 0  # of `should_stop`
        self.is_stopped = False

    def should_stop(self) -> bool:
        """Return whether to leave the training loop; see `should_stop` of this module."""
        if self.is_stopped:
            return True
        self.calls += 1
        if self.calls == 1:
            self._reporter.send(StopSupport(rank=self._rank))
        self.is_stopped = not self._reporter.should_continue(self.calls)
        return self.is_stopped


_session: RankSession | None = None


def begin(session: RankSession) -> None:
    """Make this process the rank; processes that it forks are none."""
    global _session
    _session = session
    os.register_at_fork(after_in_child=_forget)


def should_stop() -> bool:
    """Return whether the run is to stop; then save a checkpoint and leave the training loop.

    Every rank calls it once per step, at the same place: all ranks get True in the same step. Once
    it has returned True it always does. Where no run has started this process it returns False.
    """
    return _session is not None and _session.should_stop()


def _forget() -> None:
    global _session
    _session = None
