"""Notices which ranks make no progress, given what they reported before."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from distrain.runners.supervision.evidence import Evidence

LEAST_S = 5.0
EXIT_S = 10.0  # within which a rank that has finished exits
TIMES = 10.0  # the usual duration of a step or a phase, after which it is stalled
TIMES_PAUSE = 2.0  # a pause between steps that has occurred repeatedly
STEPPING = ("training", "running")  # phases in which steps are reported
_RECENT = 64  # windows, and pauses that are long enough to change the limit


@dataclass
class _Progress:
    """What a rank has reported; times are by `time.monotonic`, durations in seconds."""

    at: float
    batch_at: float = 0.0  # the last batch of an evaluation that is known
    phase: str = ""
    phase_began: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def last(self) -> float:
        """When the rank last made progress."""
        return max(self.at, self.batch_at)

    @property
    def repeated_pause(self) -> float:
        """The second longest of the last pauses between steps: one of a kind may be a hang."""
        return sorted(self.pauses)[-2] if len(self.pauses) > 1 else 0.0


class StallWatch:
    """Knows when each rank has made progress, and after which pause it is stalled.

    Steps are judged by the median of the last ones and by pauses that recur, as steps that load a
    shard cause; other phases are judged by their own last duration. Until that is known, the limit
    is `stall_s` seconds. A pause below LEAST_S, or `stall_s` if that is shorter, is no stall. Of a
    script that has reported no step nothing is known: it never stalls.
    """

    def __init__(self, evidence: Evidence, stall_s: float) -> None:
        self._evidence = evidence
        self._stall_s = stall_s
        self._least_s = min(LEAST_S, stall_s)
        self._ranks: dict[int, _Progress] = {}
        self._began = time.monotonic()

    def record_progress(self, rank: int) -> None:
        """Note a sign of life other than a finished step."""
        self._of(rank).at = time.monotonic()

    def record_batch(self, rank: int, ago_s: float) -> None:
        """Note that a rank has read a batch of an evaluation so long ago."""
        self._of(rank).batch_at = time.monotonic() - ago_s

    def record_step(self, rank: int, seconds: float) -> None:
        """Note that a rank has finished steps, which have taken so long each."""
        progress = self._of(rank)
        now = time.monotonic()
        if TIMES_PAUSE * (now - progress.at) > self._least_s:  # shorter ones change no limit
            progress.pauses.append(now - progress.at)
        progress.at = now
        progress.step_seconds.append(seconds)

    def record_phase(self, rank: int, phase: str) -> None:
        """Note that a rank begins a phase, which ends the one before."""
        progress = self._of(rank)
        now = time.monotonic()
        if progress.phase:
            progress.phase_seconds[progress.phase] = now - progress.phase_began
        progress.phase = phase
        progress.phase_began = progress.at = now

    def reset(self) -> None:
        """Forget the ranks of the last attempt."""
        self._ranks.clear()
        self.restart()

    def restart(self) -> None:
        """Count the time in which the ranks start from now on."""
        self._began = time.monotonic()

    @property
    def is_start_overdue(self) -> bool:
        """Whether ranks that have not connected yet should have done so."""
        return time.monotonic() - self._began > self._stall_s

    def is_exit_overdue(self, rank: int) -> bool:
        """Return whether a rank that has ended should have exited."""
        return self.pause_of(rank) > EXIT_S

    def phase_of(self, rank: int) -> str:
        """Return the phase that a rank has begun last."""
        return self._ranks[rank].phase if rank in self._ranks else ""

    def knows_duration(self, rank: int) -> bool:
        """Return whether a rank has been in its phase before, which tells how long that takes."""
        progress = self._ranks.get(rank)
        return progress is not None and progress.phase in progress.phase_seconds

    def pause_of(self, rank: int) -> float:
        """Return the seconds since the last progress of a rank."""
        progress = self._ranks.get(rank)
        return time.monotonic() - (progress.last if progress else self._began)

    def is_evaluating(self, rank: int) -> bool:
        """Return whether a rank has read batches of an evaluation since it last reported."""
        progress = self._ranks.get(rank)
        return progress is not None and progress.batch_at > progress.at

    def stalled(self) -> list[int]:
        """Return the ranks whose pause is longer than their limit."""
        before = time.monotonic() - self._least_s  # no limit is shorter: most ranks need no other
        silent = [rank for rank, progress in self._ranks.items() if progress.last < before]
        ranks = sorted({*silent} - self._evidence.ended) if silent else []
        return [rank for rank in ranks if self.pause_of(rank) > self._limit(self._ranks[rank])]

    def is_overdue(self, rank: int) -> bool:
        """Return whether the pause is too long for a script, whatever the script may be doing."""
        progress = self._ranks.get(rank)
        limit = self._limit(progress) if progress else self._stall_s
        return self.pause_of(rank) > max(self._stall_s, limit)

    def _limit(self, progress: _Progress) -> float:
        if progress.phase not in STEPPING:
            usual = progress.phase_seconds.get(progress.phase)
        elif progress.step_seconds:
            usual = median(progress.step_seconds)
        elif self._evidence.is_script:
            return float("inf")
        else:
            usual = None
        if usual is None:
            return self._stall_s
        repeated = progress.repeated_pause if progress.phase in STEPPING else 0.0
        # A pause of this length was a stall.
        repeated = min(TIMES_PAUSE * repeated, self._stall_s)
        return max(self._least_s, TIMES * usual, repeated)

    def _of(self, rank: int) -> _Progress:
        if rank not in self._ranks:
            self._ranks[rank] = _Progress(time.monotonic())
        return self._ranks[rank]
