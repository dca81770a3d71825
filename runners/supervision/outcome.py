"""How a run ended: completed, stopped or failed, and why, in one sentence."""

from __future__ import annotations

import msgspec

from distrain.runners import formatting
from distrain.runners.records.state import RunError, Status
from distrain.runners.supervision import run_errors
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.first_failure import first_error
from distrain.runners.system.limits import explain

STOP_ERRORS = ("KeyboardInterrupt", "SystemExit", "Exit")  # what ends an interrupted script
ALL_EXITED = "all processes exited with code 0"


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
        return _failed(run_errors.nonfinite_loss(evidence.nonfinite))
    may_be_stopped = evidence.stop_requested and not evidence.finished_before_stop
    if evidence.is_script and may_be_stopped and not evidence.failed_before_stop:
        return Outcome(status="stopped", reason=_stop_of_script(evidence))
    # The launcher starts the ranks of the first host only; agents report the exit codes of others.
    rank_failed = any(exited.code for exited in evidence.exits.values())
    failed = bool(evidence.launcher_code) or rank_failed
    # A launcher that did not end after its ranks was ended by distrain.
    has_failed = evidence.is_script and failed and not evidence.launcher_ended
    if len(evidence.finished) == evidence.world_size and not has_failed:
        return _finished(evidence)
    if evidence.missing:
        return _failed(run_errors.hosts_missing(evidence))
    if evidence.failed_before_stop:
        return failure_of(evidence, first_error(evidence))
    if evidence.stopped_now:
        reason = "stopped immediately on request, without a checkpoint"
        return Outcome(status="stopped", reason=reason)
    if evidence.stop_overdue:
        cause = f": {evidence.stop_delay}" if evidence.stop_delay else ""
        reason = f"the graceful stop took too long and was forced{cause}"
        reason += f"; {run_errors.positions(evidence)}"
        return Outcome(status="stopped", reason=reason)
    if evidence.all_terminated:
        reason = "all its processes received SIGTERM, as at a shutdown; no new checkpoint was saved"
        return Outcome(status="stopped", reason=reason)
    if evidence.is_script and evidence.launcher_code == 0 and not rank_failed:
        # Not all of its ranks could report it.
        return Outcome(status="completed", reason=_exit_of_script(evidence))
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
            _exit_of_script(evidence)
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


def _exit_of_script(evidence: Evidence) -> str:
    """Return how a script ended with exit code 0."""
    if failure := _first_rank_failure(evidence):
        return f"the program exited with code 0 although {failure}"
    if not evidence.outlived:
        return ALL_EXITED
    verb = "was" if len(evidence.outlived) == 1 else "were"
    return (
        f"the program exited with code 0 and did not wait for {formatting.ranks(evidence.outlived)}"
        f", which {verb} ended with it"
    )


def _stop_of_script(evidence: Evidence) -> str:
    """Return how a script ended after a stop was requested, with whatever exit code."""
    if evidence.stopped_now:
        return "stopped immediately on request"
    reason = f"interrupted {evidence.stop_origin}"
    if evidence.stop_overdue:
        reason += ", and ended because that took too long"
        reason += f": {evidence.stop_delay}" if evidence.stop_delay else ""
    elif not evidence.interrupted:
        reason = f"stopped {evidence.stop_origin}"
        if steps := [each.step for each in evidence.finished.values() if each.stopped]:
            reason += f" in step {max(steps):,}"
    if failure := _first_rank_failure(evidence):  # it may have been saving
        reason += f"; then {failure}"
    return reason


def _first_rank_failure(evidence: Evidence) -> str:
    """Return which rank of a script failed first, and how; "" if none did, except by a stop.

    If a rank failed because it waited for one that was killed, the killed one failed first.
    """
    mistakes = [
        (failure.secondary, when, rank)
        for rank, (when, failure) in evidence.failures.items()
        if failure.error not in STOP_ERRORS
    ]
    if not mistakes:
        return ""
    is_secondary, _, rank = min(mistakes)
    crashes = evidence.crashes
    if is_secondary and crashes:
        rank = min(crashes, key=lambda rank: crashes[rank])
        return f"rank {rank} failed: {run_errors.rank_error(evidence, rank).message}"
    failure = evidence.failures[rank][1]
    return f"rank {rank} failed: {failure.error}: {formatting.single_line(failure.message)}"


def failure_of(evidence: Evidence, error: RunError) -> Outcome:
    """Return the outcome of a run that this error has ended."""
    host = "" if error.rank is None else evidence.hosts.get(error.rank, "")
    return _failed(msgspec.structs.replace(error, host=host))


def _failed(error: RunError) -> Outcome:
    # The sentence about a hang names its ranks itself.
    is_named = error.rank is None or error.type == run_errors.HANG
    message = formatting.single_line(error.message)
    is_word = error.type == "KeyError" or " " not in message  # its message is only the key
    if is_word and message != error.type:
        message = f"{error.type}: {message}"
    reason = message if is_named else f"{error.origin}: {message}"
    return Outcome(status="failed", reason=reason, error=error)
