"""Which rank, launcher or host failed first; the other failures are its consequences."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable

from distrain.runners.protocol.events import Failure
from distrain.runners.records.job_status import UNKNOWN
from distrain.runners.records.state import RunError
from distrain.runners.supervision import run_errors
from distrain.runners.supervision.evidence import Evidence

# Two ends within this time are independent: no launcher reacts to a failure as fast.
REACTION_S = 0.02
KILLS_S = 4.0  # launchers wait longer than this before SIGKILL for ranks that ignore SIGTERM
AGENT_S = 2.0  # until the end of a node agent is noticed after that of its ranks
# Sort keys of suspects: a config error first, then an error of the rank's own, then a disconnection
# without a report.
USAGE_ERROR = -1
FAILED = 0
DISCONNECTED = 1


def first_error(evidence: Evidence) -> RunError:
    """Return the failure that caused the others."""
    job = evidence.job
    if job and job.ended and job.state not in ("COMPLETED", "FAILED"):
        # What Slurm has forgotten may have ended because of a rank.
        explains = job.state == UNKNOWN and any(
            not failure.secondary for _, failure in evidence.failures.values()
        )
        if not explains:
            return run_errors.job_ended(evidence, job)
    if evidence.program_failure and evidence.program_failed < evidence.first_rank_failed:
        return _program_error(evidence.program_failure)  # its ranks have ended with it
    suspects = _suspects(evidence)
    if all(order == DISCONNECTED for order, _ in suspects.values()):
        if evidence.unreachable:
            return run_errors.host_unreachable(evidence)
        if _agent_was_lost_first(evidence, suspects):
            return run_errors.agent_lost(evidence)
    if suspects:
        return run_errors.rank_error(
            evidence, min(suspects, key=lambda rank: suspects[rank]), suspects
        )
    reported = evidence.reported
    if _launcher_was_first(evidence) and reported:  # by ranks that noticed before they ended
        return run_errors.launcher_failed(evidence)
    if reported and evidence.mismatch:
        return run_errors.mismatch(evidence)
    if reported and (absent := [r for r in range(evidence.world_size) if r not in reported]):
        return run_errors.hang(evidence, absent)
    if reported:
        return run_errors.rank_error(evidence, min(reported, key=lambda rank: reported[rank]))
    if evidence.program_failure:
        return _program_error(evidence.program_failure)
    if unexplained := _unexplained_exits(evidence):
        first = min(unexplained, key=lambda rank: evidence.exits[rank].time)
        return run_errors.rank_error(evidence, first)
    return run_errors.launcher_failed(evidence)


def _program_error(failure: Failure) -> RunError:
    message = f"the program that started the ranks failed: {failure.error}: {failure.message}"
    return RunError(rank=None, type=failure.error, message=message, traceback=failure.traceback)


def _suspects(evidence: Evidence) -> dict[int, tuple[int, float]]:
    """Return the ranks that may have failed by themselves; the smallest value failed first.

    A launcher ends the other ranks by SIGTERM once one has failed. A rank that disconnected after
    the first failure is therefore a suspect only if its exit code tells otherwise. SIGKILL long
    after that failure is the launcher's too: the rank hangs, or a signal has stopped it. The ranks
    of a launcher that was killed die with it, and then there are no exit codes.
    """
    suspects: dict[int, tuple[int, float]] = {}
    for rank, (when, failure) in evidence.failures.items():
        if when > evidence.ended_by_signal:
            continue
        if failure.usage:  # every rank refuses the same config: report the lowest
            suspects[rank] = (USAGE_ERROR, rank)
        elif not failure.secondary:
            suspects[rank] = (FAILED, when)
    aborted = evidence.aborted_by_watchdog
    first_failure = evidence.first_report
    for rank, when in evidence.disconnected.items():
        if rank in aborted or when > evidence.ended_by_signal:
            continue
        code = evidence.exit_code(rank)
        if code == -signal.SIGKILL and when > first_failure + KILLS_S:
            continue
        died_with_launcher = code is None and _launcher_was_first(evidence)
        if code not in (None, 0, -signal.SIGTERM):
            suspects[rank] = (FAILED, when)
        elif when <= first_failure + REACTION_S and not died_with_launcher:
            suspects[rank] = (DISCONNECTED, when)
    if not evidence.launcher_signal:
        # Without a connection nobody knows when they ended: reports of other ranks come first.
        unknown = [rank for rank in _unexplained_exits(evidence) if rank not in evidence.ended]
        suspects |= dict.fromkeys(unknown, (FAILED, math.inf))
    return suspects


def _launcher_was_first(evidence: Evidence) -> bool:
    """Return whether the launcher was killed, or failed without a failed rank."""
    has_failed = bool(evidence.launcher_code) and not evidence.launcher_ended
    return evidence.launcher_killed or (
        evidence.reports_exits and has_failed and not evidence.exits
    )


def _unexplained_exits(evidence: Evidence) -> list[int]:
    """Return the ranks that ended by themselves before they connected, or after they had finished.

    The rank of launcher `inline` is the launcher, whose exit code explains nothing of a training.
    Launchers report the first rank that has ended first, and have ended the others by SIGTERM: one
    that ended so is only to blame where no other exit explains it.
    """
    expected = [0]
    if evidence.launcher_is_rank and not evidence.is_script:
        expected.append(evidence.launcher_code or 0)
    silent = [each.code for rank, each in evidence.exits.items() if rank not in evidence.failures]
    was_sent = set(silent) <= {0, -signal.SIGTERM} and not evidence.launcher_ended
    first = next(iter(evidence.exits), None) if was_sent else None
    return [
        rank
        for rank, exited in evidence.exits.items()
        if exited.code not in expected and (exited.code != -signal.SIGTERM or rank == first)
    ]


def _agent_was_lost_first(evidence: Evidence, suspects: Iterable[int]) -> bool:
    """Return whether a host lost its node agent before any rank failed.

    Its ranks die with it, and on a busy host that may be noticed first; had they died before it,
    it would have reported their exit codes. Where that agent was the launcher, the launcher's end
    is the better explanation.
    """
    if not evidence.lost_agents or evidence.launcher_killed:
        return False
    of_lost_hosts = [evidence.hosts.get(rank) in (None, *evidence.lost_agents) for rank in suspects]
    reaction_s = AGENT_S if of_lost_hosts and all(of_lost_hosts) else REACTION_S
    first_failure = evidence.first_report
    return min(evidence.lost_agents.values()) <= first_failure + reaction_s
