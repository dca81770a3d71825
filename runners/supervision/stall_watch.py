"""Notices that training makes no progress, and names the rank that is furthest behind."""

from __future__ import annotations

import time

from distrain.runners import formatting
from distrain.runners.supervision.evidence import Evidence


class StallWatch:
    """Watches for a pause of `stall_s` seconds in which all ranks train and none ends a step.

    Of a script it is only known that it runs: it may also evaluate or save then. `phases` is what
    each rank does now; `last_progress` is by `time.monotonic`.
    """

    def __init__(self, evidence: Evidence, stall_s: float) -> None:
        self._evidence = evidence
        self._stall_s = stall_s
        self._is_reported = False
        self.phases: dict[int, str] = {}
        self.last_progress = time.monotonic()

    def record_progress(self) -> None:
        """Note a sign of life other than a finished step."""
        self.last_progress = time.monotonic()

    def record_step(self) -> None:
        """Note that a rank has finished a step: a stall that was reported is over."""
        self.last_progress = time.monotonic()
        self._is_reported = False

    def reset(self) -> None:
        """Forget the ranks of the last attempt."""
        self.phases.clear()
        self._is_reported = False

    def describe_stall(self) -> str:
        """Return a sentence on a stall that was not reported yet; empty where there is none."""
        pause = time.monotonic() - self.last_progress
        if not self._all_train() or self._is_reported or pause <= self._stall_s:
            return ""
        self._is_reported = True
        steps = self._evidence.steps
        if self._evidence.is_script:  # steps since the last report are unknown
            last = formatting.rank_steps(dict(sorted(steps.items())))
            return f"no step was reported for {pause:.0f} s; last seen: {last}"
        positions = {rank: steps.get(rank, 0) for rank in range(self._evidence.world_size)}
        slowest = min(positions, key=lambda rank: positions[rank])
        if len(set(positions.values())) == 1:
            where = f"all ranks are at step {positions[slowest]}"
        else:
            where = f"furthest behind is rank {slowest} ({formatting.rank_steps(positions)})"
        return f"no step has ended for {pause:.0f} s; {where}"

    def _all_train(self) -> bool:
        """Return whether all ranks train, or run a script that has reported steps."""
        phases = set(self.phases.values())
        if self._evidence.is_script:
            return phases == {"running"} and bool(self._evidence.steps)
        return phases == {"training"}
