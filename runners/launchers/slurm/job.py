"""The state of a job, as `scontrol show job`, `squeue` and `sacct` print it.

`job_watch` follows a job with it, and decides on warnings, requeues and cancellation. `endings`
explains how a job ended, or why it will never start.
"""

from __future__ import annotations

import math
import re
import time
from typing import NamedTuple

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm.commands import expand_hostlist, run_command
from distrain.runners.protocol.events import Job
from distrain.runners.records.job_status import ENDED, UNKNOWN, WAITING

EMPTY_VALUES = {"", "(null)", "N/A", "None", "Unknown", "UNLIMITED"}


class JobInfo(NamedTuple):
    """A job at one moment.

    `limit` is its time limit as Slurm writes it; `exit_code` and `signal` are how its script ended.
    Of two jobs, that of higher `priority` starts first. A `preempted` job was ended in favour of
    another, which its state may not show.
    """

    job: Job
    partition: str = ""
    priority: int = 0
    limit: str = ""
    exit_code: int = 0
    signal: int = 0
    preempted: bool = False

    @property
    def is_waiting(self) -> bool:
        return self.job.state in WAITING

    @property
    def is_over(self) -> bool:
        """Whether it has ended and Slurm will not start it again by itself."""
        return self.job.state in ENDED or self.job.state == UNKNOWN


def query_job(job: str) -> JobInfo:
    """Return the state of a job, with its place in the queue while it waits.

    A job that Slurm no longer knows has ended: how is looked up in its accounts. Raises SlurmError,
    also where Slurm does not answer.
    """
    try:
        info = parse_job(run_command("scontrol", "--oneliner", "show", "job", job))
    except SlurmError as error:
        if "Invalid job id" not in str(error):
            raise
        return _query_accounts(job)
    return _with_place(info) if info.is_waiting else info


def parse_job(shown: str) -> JobInfo:
    """Read what `scontrol --oneliner show job` prints of one job, times as Unix seconds.

    Raises SlurmError where it prints something else.
    """
    fields = _parse_fields(shown)
    if "JobId" not in fields or "JobState" not in fields:
        raise SlurmError(
            f"scontrol shows no state of the job: {formatting.single_line(shown)[:200]}"
        )
    state = _parse_state(fields["JobState"])
    exit_code, _, signal = fields.get("ExitCode", "0:0").partition(":")
    starts = _parse_time(fields.get("StartTime", ""))
    preempted_at = _parse_time(fields.get("PreemptTime", "")) or 0.0
    job = Job(
        time=time.time(),
        id=fields["JobId"],
        state=state,
        reason=_value_or_empty(fields.get("Reason", "")),
        nodes=list(expand_hostlist(_value_or_empty(fields.get("NodeList", "")))),
        starts=starts,
        ends=None if state in WAITING else _parse_time(fields.get("EndTime", "")),
        restarts=int(fields.get("Restarts", "0")),
    )
    return JobInfo(
        job,
        partition=fields.get("Partition", ""),
        priority=int(fields.get("Priority", "0")),
        limit=fields.get("TimeLimit", ""),
        exit_code=int(exit_code),
        signal=int(signal),
        preempted=preempted_at >= (starts or math.inf),
    )


def _parse_fields(shown: str) -> dict[str, str]:
    """Return the NAME=VALUE pairs of a job.

    Only what a person chooses can contain spaces: the job's name, which comes first, so that the
    fields of interest override what it may contain; and paths and comments, which come last.
    """
    before_paths = re.split(r" (?:Command|WorkDir)=", shown)[0]
    return dict(re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(\S*)", before_paths))


def _parse_state(written: str) -> str:
    """Return one state; newer versions of Slurm list several, such as "FAILED,COMPLETING".

    A job that is in any other state has not ended.
    """
    names = [name.partition("+")[0] for name in written.split(",")]
    return next((name for name in names if name not in ENDED), names[0])


def _value_or_empty(value: str) -> str:
    return "" if value in EMPTY_VALUES else value


def _parse_time(written: str) -> float | None:
    return float(written) if written.isdigit() and int(written) else None


def _with_place(info: JobInfo) -> JobInfo:
    """Add the number of jobs that are ahead in the queue of the partition."""
    query = ("--noheader", "--states=PENDING", f"--partition={info.partition}", "--format=%A %Q")
    own_order = (-info.priority, int(info.job.id))
    ahead = 0
    for row in run_command("squeue", *query).splitlines():
        job, priority = row.split()
        if (-int(priority), int(job)) < own_order:
            ahead += 1
    return info._replace(job=structs.replace(info.job, jobs_ahead=ahead))


def _query_accounts(job: str) -> JobInfo:
    columns = ("--noheader", "--parsable2", "--allocations", "--format=State,ExitCode,Timelimit")
    try:
        rows = run_command("sacct", f"--jobs={job}", *columns).splitlines()
    except SlurmError:
        rows = []
    state, codes, limit = rows[-1].split("|") if rows else (UNKNOWN, "0:0", "")
    exit_code, _, signal = codes.partition(":")
    state = state.split()[0]  # "CANCELLED by 1000"
    if state not in ENDED:  # accounts that have missed the end of a job let it run forever
        state = UNKNOWN
    found = Job(time=time.time(), id=job, state=state)
    return JobInfo(found, limit=limit, exit_code=int(exit_code), signal=int(signal))
