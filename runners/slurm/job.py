"""How a job stands: what `scontrol show job` and `squeue` tell of it, and the words for its end."""

from __future__ import annotations

import math
import re
import time
from typing import NamedTuple

from msgspec import structs

from runners import words
from runners.errors import SlurmError
from runners.events import Job
from runners.slurm.commands import asked, hostnames
from runners.slurm.nodes import down, longest

WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
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
UNKNOWN = "UNKNOWN"  # Slurm has forgotten the job, and keeps no accounts of it
_NOTHING = {"", "(null)", "N/A", "None", "Unknown", "UNLIMITED"}

# Reasons that time does not mend, of Slurm 22 to 24.
FOREVER = {
    "AccountNotAllowed": "partition {partition} does not take its account",
    "BadConstraints": "no node has all that it asks for",
    "DependencyNeverSatisfied": "what it depends on will never be",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "JobHeldAdmin": "the administrator holds it",
    "JobHeldUser": "somebody holds it: scontrol release {job.id}",
    "JobHoldMaxRequeue": "it was queued again too often and is held: scontrol release {job.id}",
    "MaxMemPerLimit": "it asks for more memory than a job may have",
    "PartitionConfig": "it asks for more than partition {partition} has or gives a job",
    "PartitionDown": "partition {partition} is down",
    "PartitionInactive": "partition {partition} is not active",
    "PartitionNodeLimit": "it asks for more nodes than partition {partition} gives a job",
    "PartitionTimeLimit": "it asks for {asks}{most}",
    "QOSNotAllowed": "partition {partition} does not take its quality of service",
    "ReservationDeleted": "its reservation is no more",
    "job_requeued_in_held_state": "it was queued again and is held: scontrol release {job.id}",
    "launch_failed_requeued_held": "it could not begin and is held: scontrol release {job.id}",
}
# Limits of a single job; those of a user's or an account's jobs together make it wait its turn.
_LIMIT = re.compile("(Assoc|QOS)(Max|Min)([A-Za-z]+?)(Per(Job|Node)(Limit)?)?")
_WHOSE = {"Assoc": "its account", "QOS": "its quality of service"}
_WHAT = {
    "Cpu": "CPUs",
    "CpuMinutes": "CPU minutes",
    "GRES": "GPUs",
    "GRESMinutes": "GPU minutes",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "WallDuration": "time",
}


class Seen(NamedTuple):
    """A job at one moment. `limit` is its time limit in Slurm's words, `code` and `signal` how
    its script ended; `priority` is the higher the sooner it starts; a `preempted` one was told to
    end in favour of another, which its state may not tell.
    """

    job: Job
    partition: str = ""
    priority: int = 0
    limit: str = ""
    code: int = 0
    signal: int = 0
    preempted: bool = False

    @property
    def waits(self) -> bool:
        return self.job.state in WAITING

    @property
    def over(self) -> bool:
        """It has ended, and Slurm will not start it again by itself."""
        return self.job.state in ENDED or self.job.state == UNKNOWN


def look(job: str) -> Seen:
    """How a job stands now, with its place in the queue; raises SlurmError, also where Slurm does
    not answer. A job that Slurm has forgotten is looked up in its accounts.
    """
    try:
        seen = read(asked("scontrol", "--oneliner", "show", "job", job))
    except SlurmError as error:
        if "Invalid job id" not in str(error):
            raise
        return _accounted(job)
    return _with_place(seen) if seen.waits else seen


def read(shown: str) -> Seen:
    """What `scontrol --oneliner show job` prints of one job, times as Unix seconds.

    Raises SlurmError where it prints something else.
    """
    fields = _fields(shown)
    if not {"JobId", "JobState"} <= fields.keys():
        raise SlurmError(f"scontrol tells nothing of the job: {words.line(shown)[:200]}")
    state = _state(fields["JobState"])
    code, _, signal = fields.get("ExitCode", "0:0").partition(":")
    job = Job(
        time=time.time(),
        id=fields["JobId"],
        state=state,
        reason=_unless_nothing(fields.get("Reason", "")),
        nodes=list(hostnames(_unless_nothing(fields.get("NodeList", "")))),
        starts=_moment(fields.get("StartTime", "")),
        ends=None if state in WAITING else _moment(fields.get("EndTime", "")),
        restarts=int(fields.get("Restarts", "0")),
    )
    priority, partition = int(fields.get("Priority", "0")), fields.get("Partition", "")
    preempted = (_moment(fields.get("PreemptTime", "")) or 0.0) >= (job.starts or math.inf)
    limit = fields.get("TimeLimit", "")
    return Seen(job, partition, priority, limit, int(code), int(signal), preempted)


def _fields(shown: str) -> dict[str, str]:
    """Only what a person may word can hold spaces: the job's name, which comes before all that
    is of interest and so is overruled by it, and paths and comments, which come after.
    """
    told = re.split(r" (?:Command|WorkDir)=", shown)[0]
    return dict(re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(\S*)", told))


def _state(written: str) -> str:
    """One word; newer Slurms list what else holds, "FAILED,COMPLETING", and then it goes on."""
    names = [name.partition("+")[0] for name in written.split(",")]
    return next((name for name in names if name not in ENDED), names[0])


def _unless_nothing(value: str) -> str:
    return "" if value in _NOTHING else value


def _moment(written: str) -> float | None:
    return float(written) if written.isdigit() and int(written) else None


def _with_place(seen: Seen) -> Seen:
    queue = ("squeue", "--noheader", "--states=PENDING", f"--partition={seen.partition}")
    rows = [row.split() for row in asked(*queue, "--format=%A %Q").splitlines()]
    ours = (-seen.priority, int(seen.job.id))
    before = sum((-int(priority), int(job)) < ours for job, priority in rows)
    return seen._replace(job=structs.replace(seen.job, place=before))


def _accounted(job: str) -> Seen:
    columns = ("--noheader", "--parsable2", "--allocations", "--format=State,ExitCode,Timelimit")
    try:
        rows = asked("sacct", f"--jobs={job}", *columns).splitlines()
    except SlurmError:
        rows = []
    state, codes, limit = rows[-1].split("|") if rows else (UNKNOWN, "0:0", "")
    code, _, signal = codes.partition(":")
    told = Job(time=time.time(), id=job, state=state.split()[0])  # "CANCELLED by 1000"
    return Seen(told, limit=limit, code=int(code), signal=int(signal))


def forever(seen: Seen) -> str:
    """Why a waiting job will not start however long it waits, in a sentence; else empty."""
    reason = seen.job.reason
    why = (FOREVER.get(reason) or _beyond(reason)) if seen.waits else ""
    if not why:
        return ""
    most = _most(seen.partition) if reason == "PartitionTimeLimit" else ""
    told = f"job {seen.job.id} waits in vain: {why}"
    asks = seen.limit.removeprefix("0")
    return told.format(job=seen.job, partition=seen.partition, asks=asks, most=most)


def _beyond(reason: str) -> str:
    """The sentence of a limit that the job alone is beyond; empty of other reasons."""
    found = _LIMIT.fullmatch(reason)
    if found is None or not (found[4] or found[2] == "Min"):
        return ""
    whose, what = _WHOSE[found[1]], _WHAT.get(found[3], found[3])
    if found[2] == "Min":
        return f"it asks for less than {whose} wants of a job ({reason})"
    return f"it asks for more {what} than {whose} gives a job"


def _most(partition: str) -> str:
    try:
        return f", partition {partition} gives a job {longest(partition).removeprefix('0')} at most"
    except SlurmError:
        return f", more than partition {partition} gives a job"


def ending(seen: Seen) -> str:
    """How a job that is over ended, in a sentence; raises SlurmError."""
    job = seen.job
    match job.state:
        case "COMPLETED":
            return f"job {job.id} completed"
        case "CANCELLED":
            return f"job {job.id} was cancelled outside distrain"
        case "TIMEOUT":
            return f"the time limit of job {job.id} was reached{_of(seen.limit)}"
        case "NODE_FAIL":
            return f"{_named(down(job.nodes))} of job {job.id} failed"
        case "PREEMPTED" | "FAILED" if seen.preempted or job.state == "PREEMPTED":
            return f"job {job.id} had to give way to another"
        case "OUT_OF_MEMORY":
            return f"job {job.id} took more memory than it was given; set slurm.memory"
        case "DEADLINE":
            return f"job {job.id} could not end before its deadline"
        case "BOOT_FAIL":
            return f"the nodes of job {job.id} did not start"
        case "FAILED":
            return _failed(seen)
    return f"how job {job.id} ended is not known: Slurm has forgotten it"


def _named(nodes: list[str]) -> str:
    return f"node{'s' * (len(nodes) > 1)} {', '.join(nodes)}" if nodes else "a node"


def _of(limit: str) -> str:
    return f": {limit.removeprefix('0')}" if limit else ""


def _failed(seen: Seen) -> str:
    job = seen.job
    if job.reason == "JobLaunchFailure" and seen.signal != 9:
        where = f" on {job.nodes[0]}" if job.nodes else ""
        return f"Slurm could not begin job {job.id}{where}: its folder or log is out of reach there"
    if seen.signal:
        return f"the script of job {job.id} was killed by {words.signal_name(seen.signal)}"
    name = f" ({words.signal_name(seen.code - 128)})" if seen.code > 128 else ""
    return f"job {job.id} ended with exit code {seen.code}{name}"
