"""How a run ended that distrain did not start: nobody here knows exit codes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from distrain.runners import formatting
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.first_failure import first_error
from distrain.runners.supervision.outcome import Outcome, failure_of

INTERRUPTED = "KeyboardInterrupt"


def judge_observed(
    evidence: Evidence, absent: Sequence[int] = (), running: Collection[int] = ()
) -> Outcome:
    """Return whether the program completed, was stopped or failed, from what its ranks reported.

    `absent` are the ranks that have never connected, `running` those that are still connected.
    """
    if evidence.failures:
        error = first_error(evidence)
        if error.type == INTERRUPTED:
            return Outcome(status="stopped", reason="interrupted (KeyboardInterrupt)")
        return failure_of(evidence, error)
    if running:
        verb = "was" if len(running) == 1 else "were"
        reason = f"the observer was ended while {formatting.ranks(sorted(running))} {verb} running"
        return Outcome(status="stopped", reason=reason)
    if evidence.disconnected or not evidence.finished:
        return Outcome(status="stopped", reason=_unknown_end(evidence))
    stopped = [each.step for each in evidence.finished.values() if each.stopped]
    if stopped:
        return Outcome(status="stopped", reason=f"stopped on request in step {max(stopped):,}")
    reason = "the program has ended"
    if absent:
        reason += f"; {formatting.ranks(absent)} never connected"
    return Outcome(status="completed", reason=reason)


def _unknown_end(evidence: Evidence) -> str:
    lost = sorted(evidence.disconnected)
    if not lost:
        return "ended, cause unknown: no rank has connected"
    steps = {rank: evidence.steps.get(rank, 0) for rank in lost}
    ranks = formatting.ranks(lost)
    verb = "was" if len(lost) == 1 else "were"
    last = f"; last seen: {formatting.rank_steps(steps)}" if any(steps.values()) else ""
    return f"ended, cause unknown: {ranks} {verb} gone without a report{last}"
