"""What a scheduler says of a run's job, and how often its ranks were started anew, in words."""

from __future__ import annotations

from runners import words
from runners.events import Job
from runners.slurm.job import ENDED, UNKNOWN
from runners.state import RunState

PENDING, RUNNING, COMPLETING = "PENDING", "RUNNING", "COMPLETING"
REFUSED = "REFUSED"  # our own word: sbatch did not take it
# States that are no cause for alarm; all others (CANCELLED, TIMEOUT, NODE_FAIL, …) end it badly.
COLOURS = {
    PENDING: "yellow",
    "CONFIGURING": "yellow",
    "REQUEUED": "yellow",
    "SUSPENDED": "yellow",
    RUNNING: "cyan",
    COMPLETING: "cyan",
    "COMPLETED": "green",
}

IN_THE_QUEUE = (
    PENDING,
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "CONFIGURING",
    "SUSPENDED",
)


def in_the_queue(job: Job | None) -> bool:
    """Whether there is a job that waits, for the first time or once more."""
    return job is not None and job.state in IN_THE_QUEUE


def over(job: Job) -> bool:
    """Whether it is known to have ended."""
    return bool(job.ended) or job.state in ENDED or job.state == UNKNOWN


def waits(state: RunState) -> bool:
    """Whether a live run waits for its job, for the first time or again."""
    return state.live and state.job is not None and state.job.state not in (RUNNING, COMPLETING)


def of_run(state: RunState, now: float) -> str:
    """How a run's job stands; of one that nobody saw end "job 4711, RUNNING when last seen"."""
    job = state.job
    if job is None:
        return ""
    if state.live or over(job):
        return told(job, now)
    return f"job {job.id}, {word(job)} when last seen"


def standing(state: RunState) -> str:
    """Of a run that waits or trains, whose job it is and where: "job 4711 on n1, n2"."""
    job = state.job
    if job is None or state.status not in ("queued", "running"):
        return ""
    more = " …" if len(job.nodes) > words.MANY else ""
    where = ", ".join(job.nodes[: words.MANY]) + more
    return " on ".join(filter(None, (named(job), where)))


def told(job: Job, now: float) -> str:
    """All of it: "job 4711 PENDING (Resources), 3 before it, expected to start in 12.3 s"."""
    return ", ".join([f"{named(job)} {word(job)}", *_times(job, now), *_places(job)])


def named(job: Job) -> str:
    """ "job 4711"; one that Slurm never took has no number."""
    return f"job {job.id}" if job.id else "the job"


def word(job: Job) -> str:
    """Slurm's own: "PENDING (Resources)", "RUNNING", "TIMEOUT"."""
    if job.state == REFUSED:
        return "was refused"
    # Slurm's reason for nothing in particular is None.
    return f"{job.state} ({job.reason})" if job.reason not in ("", "None") else job.state


def left(job: Job, now: float) -> str:
    """Until its time is up: "12.3 s left"; empty where that is not known, or it does not run."""
    if job.state != RUNNING or job.ends is None:
        return ""
    return f"{words.duration(job.ends - now)} left" if job.ends > now else "its time is up"


def _times(job: Job, now: float) -> list[str]:
    found = [left(job, now)]
    if job.state == PENDING:
        if job.place is not None:
            found.append(f"{job.place:,} before it")
        if job.starts is not None and job.starts > now:
            found.append(f"expected to start in {words.duration(job.starts - now)}")
    return [text for text in found if text]


def _places(job: Job) -> list[str]:
    found = [f"on {words.things(len(job.nodes), 'node')}"] if job.nodes else []
    return found + ([f"queued again {words.things(job.restarts, 'time')}"] if job.restarts else [])


def anew(attempts: int, done_again: int) -> str:
    """ "started anew 1 time, 23 steps done again"; empty for none."""
    if not attempts:
        return ""
    again = f", {words.things(done_again, 'step')} done again" if done_again else ""
    return f"started anew {words.things(attempts, 'time')}{again}"
