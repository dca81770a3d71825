"""The state of a run's Slurm job, and sentences about it and about restarts of the ranks."""

from __future__ import annotations

from distrain.runners import formatting
from distrain.runners.protocol.events import Job
from distrain.runners.records.state import RunState

PENDING = "PENDING"
RUNNING = "RUNNING"
COMPLETING = "COMPLETING"
# States of a job that Slurm will start, or start again, when its turn comes.
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
# States of a job whose ranks do not run yet, or not at the moment.
NOT_RUNNING = WAITING | {"CONFIGURING", "SUSPENDED"}
# States of a job that has ended and that Slurm will not start again.
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
UNKNOWN = "UNKNOWN"  # Slurm no longer knows the job, nor do its accounts know how it ended
REFUSED = "REFUSED"  # not Slurm's: sbatch did not accept the job


def is_queued(job: Job | None) -> bool:
    """Return whether there is a job that waits to be started or continued."""
    return job is not None and job.state in NOT_RUNNING


def has_ended(job: Job) -> bool:
    """Return whether the job is known to have ended."""
    return bool(job.ended) or job.state in ENDED or job.state == UNKNOWN


def is_waiting(state: RunState) -> bool:
    """Return whether a live run has a job that does not run, so that the run waits for it."""
    return state.live and state.job is not None and state.job.state not in (RUNNING, COMPLETING)


def describe_job_of(state: RunState, now: float) -> str:
    """Return a run's job in words, or "" without one.

    If nothing reported the job's end: "job 4711, RUNNING when last seen". `now` is in Unix seconds.
    """
    job = state.job
    if job is None:
        return ""
    if state.live or has_ended(job):
        return describe(job, now)
    return f"{label(job)}, {state_text(job)} when last seen"


def job_and_nodes(state: RunState) -> str:
    """Return the job of a queued or running run and its nodes: "job 4711 on n1, n2"."""
    job = state.job
    if job is None or state.status not in ("queued", "running"):
        return ""
    if not job.nodes:
        return label(job)
    nodes = ", ".join(job.nodes[: formatting.LISTED_AT_MOST])
    if len(job.nodes) > formatting.LISTED_AT_MOST:
        nodes += " …"
    return f"{label(job)} on {nodes}"


def describe(job: Job, now: float) -> str:
    """Return all about a job: "job 4711 PENDING (Resources), 3 jobs ahead, expected to start in …".

    `now` is in Unix seconds.
    """
    parts = [f"{label(job)} {state_text(job)}"]
    if remaining := time_left(job, now):
        parts.append(remaining)
    if job.state == PENDING:
        if job.jobs_ahead is not None:
            parts.append(f"{formatting.plural(job.jobs_ahead, 'job')} ahead")
        if job.starts is not None and job.starts > now:
            parts.append(f"expected to start in {formatting.duration(job.starts - now)}")
    if job.nodes:
        parts.append(f"on {formatting.plural(len(job.nodes), 'node')}")
    if job.restarts:
        parts.append(f"requeued {formatting.plural(job.restarts, 'time')}")
    return ", ".join(parts)


def label(job: Job) -> str:
    """Return "job 4711", or "the job" for one that Slurm did not accept and that has no number."""
    return f"job {job.id}" if job.id else "the job"


def state_text(job: Job) -> str:
    """Return Slurm's state with its reason: "PENDING (Resources)", "RUNNING", "TIMEOUT"."""
    if job.state == REFUSED:
        return "was refused"
    if job.reason in ("", "None"):  # "None" is what Slurm reports when there is no reason
        return job.state
    return f"{job.state} ({job.reason})"


def time_left(job: Job, now: float) -> str:
    """Return "12.3 s left" until a running job's time limit; "" where that is not known."""
    if job.state != RUNNING or job.ends is None:
        return ""
    if job.ends <= now:
        return "time limit reached"
    return f"{formatting.duration(job.ends - now)} left"


def describe_restarts(restarts: int, repeated_steps: int) -> str:
    """Return "restarted 1 time, 23 steps repeated", or "" for no restarts."""
    if not restarts:
        return ""
    text = f"restarted {formatting.plural(restarts, 'time')}"
    if repeated_steps:
        text += f", {formatting.plural(repeated_steps, 'step')} repeated"
    return text
