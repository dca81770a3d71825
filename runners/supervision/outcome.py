"""Why a run ended: which rank failed first, and which failures are only its consequences."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable

import msgspec

from distrain.runners import formatting
from distrain.runners.protocol.events import Job, NonFinite
from distrain.runners.records.state import RunError, Status
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.system.limits import cpu_seconds, explain

HANG = "Hang"
JOB_ENDED = "JobEnded"
# Two ends within this time are independent: no launcher reacts to a failure as fast.
REACTION_S = 0.02
KILLS_S = 4.0  # launchers wait longer than this before SIGKILL for ranks that ignore SIGTERM
AGENT_S = 2.0  # until the end of a node agent is noticed after that of its ranks
STOP_ERRORS = ("KeyboardInterrupt", "SystemExit", "Exit")  # what ends an interrupted script
ALL_EXITED = "all processes exited with code 0"
# Sort keys of suspects: a config error first, then an error of the rank's own, then a disconnection
# without a report.
USAGE_ERROR = -1
FAILED = 0
DISCONNECTED = 1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: a status, one sentence, and the error of a run that failed."""

    status: Status
    reason: str
    error: RunError | None = None


def judge(evidence: Evidence) -> Outcome:
    """Return whether the run completed, was stopped or failed, with the reason."""
    outcome = _judge(evidence)
    if not evidence.survivors:
        return outcome
    reason = f"{outcome.reason}; {evidence.survivors}"
    return msgspec.structs.replace(outcome, reason=reason)


def _judge(evidence: Evidence) -> Outcome:
    if evidence.folder_lost:
        message = f"its folder {evidence.folder_lost} was moved or deleted while the run was live"
        return _failed(RunError(rank=None, type="FolderLost", message=message))
    if evidence.queued:
        return Outcome(status="stopped", reason="removed from the queue")
    if evidence.nonfinite:
        return _failed(_nonfinite_loss(evidence.nonfinite))
    if evidence.is_script and evidence.stop_requested:
        return Outcome(status="stopped", reason=_stop_of_script(evidence))
    # A launcher that did not end after its ranks was ended by distrain.
    has_failed = evidence.is_script and bool(evidence.launcher_code) and not evidence.launcher_ended
    if len(evidence.finished) == evidence.world_size and not has_failed:
        return _finished(evidence)
    if evidence.missing:
        return _failed(_hosts_missing(evidence))
    if evidence.stopped_now:
        reason = "stopped immediately on request, without a checkpoint"
        return Outcome(status="stopped", reason=reason)
    if evidence.stop_overdue:
        cause = f": {evidence.stop_delay}" if evidence.stop_delay else ""
        reason = f"the graceful stop took too long and was forced{cause}; {_positions(evidence)}"
        return Outcome(status="stopped", reason=reason)
    if evidence.is_script and evidence.launcher_code == 0:  # though not all could report it
        return Outcome(status="completed", reason=ALL_EXITED)
    return failure_of(evidence, first_error(evidence))


def supervisor_failure(error: Exception) -> Outcome:
    """Return the outcome of a run whose supervisor failed itself, which is a bug of ours."""
    why = explain(error) if isinstance(error, OSError) else error
    message = f"the supervisor failed ({why}); see logs/supervisor.log"
    return _failed(RunError(rank=None, type=type(error).__name__, message=message))


def _finished(evidence: Evidence) -> Outcome:
    """Return the outcome of a run whose ranks have all left the training loop in order."""
    if not any(finished.stopped for finished in evidence.finished.values()):
        own = next((each.reason for each in evidence.finished.values() if each.reason), "")
        reason = (
            ALL_EXITED
            if evidence.is_script
            else formatting.single_line(own) or "completed all steps"
        )
        return Outcome(status="completed", reason=reason)
    step = max(finished.step for finished in evidence.finished.values())
    reason = f"stopped {evidence.stop_origin} after step {step:,}"
    job = evidence.job
    if job and job.ended and job.state != "COMPLETED":  # Slurm, or somebody else, ended it
        reason += f": {job.ended}"
    return Outcome(status="stopped", reason=reason)


def _stop_of_script(evidence: Evidence) -> str:
    """Return how a script ended after a stop was requested, with whatever exit code."""
    if evidence.stopped_now:
        return "stopped immediately on request"
    reason = "interrupted on request"
    if evidence.stop_overdue:
        reason += ", and ended because that took too long"
        reason += f": {evidence.stop_delay}" if evidence.stop_delay else ""
    elif not evidence.interrupted:
        reason = f"stopped {evidence.stop_origin}"
        if steps := [each.step for each in evidence.finished.values() if each.stopped]:
            reason += f" in step {max(steps):,}"
    failures = sorted(evidence.failures.items())
    mistakes = [(rank, each) for rank, (_, each) in failures if each.error not in STOP_ERRORS]
    for rank, failure in mistakes[:1]:  # it may have been saving
        message = formatting.single_line(failure.message)
        reason += f"; then rank {rank} failed: {failure.error}: {message}"
    return reason


def failure_of(evidence: Evidence, error: RunError) -> Outcome:
    """Return the outcome of a run that this error has ended."""
    host = "" if error.rank is None else evidence.hosts.get(error.rank, "")
    return _failed(msgspec.structs.replace(error, host=host))


def _failed(error: RunError) -> Outcome:
    # The sentence about a hang names its ranks itself.
    is_named = error.rank is None or error.type == HANG
    reason = error.message if is_named else f"{error.origin}: {error.message}"
    return Outcome(status="failed", reason=reason, error=error)


# --- which failure came first --------------------------------------------------------------------


def first_error(evidence: Evidence) -> RunError:
    """Return the failure that caused the others."""
    job = evidence.job
    if job and job.ended and job.state not in ("COMPLETED", "FAILED"):
        return _job_ended(evidence, job)
    suspects = _suspects(evidence)
    if all(order == DISCONNECTED for order, _ in suspects.values()):
        if evidence.unreachable:
            return _host_unreachable(evidence)
        if _agent_was_lost_first(evidence, suspects):
            return _agent_lost(evidence)
    if suspects:
        return _rank_error(evidence, min(suspects, key=lambda rank: suspects[rank]), suspects)
    reported = _reported(evidence)
    if _launcher_was_first(evidence) and reported:  # by ranks that noticed before they ended
        return _launcher_failed(evidence)
    if reported and (absent := [r for r in range(evidence.world_size) if r not in reported]):
        return _hang(evidence, absent)
    if reported:
        return _rank_error(evidence, min(reported, key=lambda rank: reported[rank]))
    if failure := evidence.program_failure:
        return RunError(
            rank=None, type=failure.error, message=failure.message, traceback=failure.traceback
        )
    if unexplained := _unexplained_exits(evidence):
        first = min(unexplained, key=lambda rank: evidence.exits[rank].time)
        return _rank_error(evidence, first)
    return _launcher_failed(evidence)


def _suspects(evidence: Evidence) -> dict[int, tuple[int, float]]:
    """Return the ranks that may have failed by themselves; the smallest value failed first.

    A launcher ends the other ranks by SIGTERM once one has failed. A rank that disconnected after
    the first failure is therefore a suspect only if its exit code tells otherwise. SIGKILL long
    after that failure is the launcher's too: the rank hangs, or a signal has stopped it. The ranks
    of a launcher that was killed die with it, and then there are no exit codes.
    """
    suspects: dict[int, tuple[int, float]] = {}
    for rank, (when, failure) in evidence.failures.items():
        if when > evidence.launcher_signalled:
            continue
        if failure.usage:  # every rank refuses the same config: report the lowest
            suspects[rank] = (USAGE_ERROR, rank)
        elif not failure.secondary:
            suspects[rank] = (FAILED, when)
    aborted = _aborted_by_watchdog(evidence)
    first_failure = min(_reported(evidence).values(), default=float("inf"))
    for rank, when in evidence.disconnected.items():
        if rank in aborted or when > evidence.launcher_signalled:
            continue
        code = _exit_code(evidence, rank)
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


def _reported(evidence: Evidence) -> dict[int, float]:
    """Return the ranks that reported a failure, or that a watchdog ended, with the time."""
    failed = {rank: when for rank, (when, _) in evidence.failures.items()}
    aborted = {rank: evidence.disconnected[rank] for rank in _aborted_by_watchdog(evidence)}
    return aborted | failed


def _aborted_by_watchdog(evidence: Evidence) -> set[int]:
    """Return the ranks that NCCL's or Horovod's watchdog aborted while they waited for another."""
    if not evidence.watchdog_aborts:
        return set()
    return {rank for rank in evidence.disconnected if _exit_code(evidence, rank) == -signal.SIGABRT}


def _unexplained_exits(evidence: Evidence) -> list[int]:
    """Return the ranks that ended by themselves before they connected, or after they had finished.

    The rank of launcher `inline` is the launcher, whose exit code explains nothing of a training.
    Launchers report the first rank that has ended first, and have ended the others by SIGTERM: one
    that ended so is only to blame where no other exit explains it.
    """
    expected = [0]
    if not evidence.is_script:
        expected.append(evidence.launcher_code or 0)
    silent = [each.code for rank, each in evidence.exits.items() if rank not in evidence.failures]
    was_sent = set(silent) <= {0, -signal.SIGTERM} and not evidence.launcher_ended
    first = next(iter(evidence.exits), None) if was_sent else None
    return [
        rank
        for rank, exited in evidence.exits.items()
        if exited.code not in expected and (exited.code != -signal.SIGTERM or rank == first)
    ]


def _exit_code(evidence: Evidence, rank: int) -> int | None:
    return evidence.exits[rank].code if rank in evidence.exits else None


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
    first_failure = min(_reported(evidence).values(), default=float("inf"))
    return min(evidence.lost_agents.values()) <= first_failure + reaction_s


# --- errors and their sentences ------------------------------------------------------------------


def _rank_error(
    evidence: Evidence, rank: int, suspects: dict[int, tuple[int, float]] | None = None
) -> RunError:
    """Return the error of the rank that failed first."""
    others = sorted(set(_all_lost(evidence)) - set(suspects or ()) - {rank})
    if rank not in evidence.failures:
        return _silent_end(evidence, rank, others)
    failure = evidence.failures[rank][1]
    return RunError(
        rank=rank,
        type=failure.error,
        message=failure.message,
        traceback=failure.traceback,
        step=failure.step,
        secondary=others,
        usage=failure.usage,
    )


def _all_lost(evidence: Evidence) -> list[int]:
    """Return all ranks that failed or disconnected, in order."""
    return sorted(evidence.failures.keys() | evidence.disconnected.keys())


def _silent_end(evidence: Evidence, rank: int, others: list[int]) -> RunError:
    """Return the error of a rank that ended without reporting one."""
    code = _exit_code(evidence, rank)
    step = evidence.steps.get(rank, 0)
    if evidence.is_script and not any(evidence.steps.values()):
        when = ""  # its steps are unknown
    elif step:
        when = f"after step {step:,}"
    elif any(evidence.steps.values()):  # it may have done steps that it could not report any more
        when = "before it reported a step"
    else:
        when = "before its first step"
    if code is None:
        kind = "Vanished"
        message = f"disconnected {when} without reporting an error"
    elif code >= 0:
        kind = "Exit"
        message = f"exited with code {code} {when} without reporting an error"
    else:
        kind = formatting.signal_name(-code)
        message = f"killed by {kind} {when}".rstrip()
        if kind == "SIGKILL":
            message += f" ({_who_kills()})"
        elif cause := evidence.aborts.get(rank):
            message += f": {cause}"
    message = " ".join(message.split())
    return RunError(rank=rank, type=kind, message=message, step=step, secondary=others)


def _who_kills() -> str:
    limit = cpu_seconds()
    killers = "manually or by the OOM killer"
    return f"{killers}, or at the limit of {limit} s of CPU time, `ulimit -t`" if limit else killers


def _job_ended(evidence: Evidence, job: Job) -> RunError:
    """Return the error of ranks that were ended with their job: none of them is to blame."""
    message = job.ended
    if any(evidence.steps.values()):
        message += f"; {_positions(evidence)}"
    return RunError(rank=None, type=JOB_ENDED, message=message, secondary=_all_lost(evidence))


def _host_unreachable(evidence: Evidence) -> RunError:
    since = formatting.time_of_day(min(evidence.unreachable.values()))
    hosts = " and ".join(sorted(evidence.unreachable))
    verb = "has" if len(evidence.unreachable) == 1 else "have"
    message = (
        f"{hosts} {verb} not answered since {since} (network or power failure?); "
        f"{_positions(evidence)}"
    )
    return RunError(rank=None, type="HostLost", message=message, secondary=_all_lost(evidence))


def _agent_lost(evidence: Evidence) -> RunError:
    first = min(evidence.lost_agents, key=lambda host: evidence.lost_agents[host])
    message = (
        f"{first} left the run: the process that starts its ranks was killed; "
        f"{_positions(evidence)}"
    )
    return RunError(rank=None, type="HostLost", message=message, secondary=_all_lost(evidence))


def _hosts_missing(evidence: Evidence) -> RunError:
    message = f"{evidence.missing} did not join within dist.join_timeout_s; nothing was trained"
    return RunError(rank=None, type="HostMissing", message=message)


def _hang(evidence: Evidence, absent: list[int]) -> RunError:
    names = " and ".join(f"rank {rank}" for rank in absent)
    verb = "is" if len(absent) == 1 else "are"
    first_failure = min(_reported(evidence).values(), default=math.inf)
    left = {rank for rank, when in evidence.disconnected.items() if when < first_failure}
    if {*left, *evidence.finished}.issuperset(absent):
        verb = f"{'has' if len(absent) == 1 else 'have'} ended and {verb}"
    message = (
        f"{names} {verb} absent from a collective in which the others wait; {_positions(evidence)}"
    )
    tracebacks = (
        f"rank {rank} waited here:\n{failure.traceback}"
        for rank, (_, failure) in evidence.failures.items()
        if failure.traceback
    )
    return RunError(
        rank=absent[0],
        type=HANG,
        message=message,
        step=evidence.steps.get(absent[0], 0),
        secondary=sorted(_reported(evidence)),
        traceback=next(tracebacks, ""),
    )


def _launcher_failed(evidence: Evidence) -> RunError:
    code = -evidence.launcher_signal or evidence.launcher_code or 0
    log = evidence.launcher_log
    lines = log.strip().splitlines()
    last_line = lines[-1].strip() if lines else ""
    if code < 0:
        message = f"the launcher was killed by {formatting.signal_name(-code)} while its ranks ran"
    elif evidence.job and last_line:  # the launcher of a job prints a sentence for people
        message = last_line
    else:
        output = f"its last output: {last_line}" if last_line else "it printed nothing"
        message = f"the launcher exited with code {code} before its ranks did; {output}"
    return RunError(rank=None, type="LauncherFailed", message=message, traceback=log)


def _nonfinite_loss(event: NonFinite) -> RunError:
    message = (
        f"the loss became {event.loss} at step {event.step}; try a lower learning rate, warm-up "
        'or clip_norm, or set train.on_nan = "continue" to train on'
    )
    return RunError(rank=event.rank, type="NonFiniteLoss", message=message, step=event.step)


def _positions(evidence: Evidence) -> str:
    if evidence.is_script:  # where steps that were not reported are unknown
        steps = dict(sorted(evidence.steps.items()))
    else:
        steps = {rank: evidence.steps.get(rank, 0) for rank in range(evidence.world_size)}
    return f"last seen: {formatting.rank_steps(steps)}" if steps else "no step was reported"
