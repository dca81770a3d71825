"""Slurm's commands, each within a limited time: their output, or a sentence on what went wrong."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.errors import SlurmError

TIMEOUT_S = 60.0
LATE_JOB_S = 10.0  # for a job to appear whose sbatch did not answer
# Errors of sbatch after which the job may exist all the same.
UNCERTAIN = re.compile("did not answer|timed out|no job id", re.IGNORECASE)
# Prefixes of variables that hold a user's defaults for other queries than ours.
USER_DEFAULTS = ("SLURM_", "SQUEUE_", "SINFO_", "SCANCEL_")
# What the config decides, or what would change the kind of the job: see `config.sbatch_options`.
CONFLICTING = {"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_WAIT"}
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


def run_command(
    *command: str, environment: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> str:
    """Return what a command prints, with times as Unix seconds.

    Raises SlurmError with Slurm's own words at the end; also if there is no answer within
    `timeout_s` (default: TIMEOUT_S).
    """
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    if environment is None:
        environment = without_job_variables(os.environ) | {"SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except FileNotFoundError:
        text = f"{command[0]} was not found: this is not a login node of a Slurm cluster"
        raise SlurmError(text) from None
    except OSError as error:
        raise SlurmError(f"{command[0]} could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired as expired:
        text = f"{command[0]} did not answer within {timeout_s:g} s"
        if reason := _error_text((expired.stderr or b"").decode(errors="replace")):
            text += f": {reason}"
        raise SlurmError(text) from None
    if done.returncode:
        reason = _error_text(done.stderr) or f"exit code {done.returncode}"
        raise SlurmError(f"{command[0]} failed: {reason}")
    return done.stdout.strip()


def without_job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove the variables of a job around this process and a user's defaults for other jobs."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not (name.startswith(USER_DEFAULTS) or name in CONFLICTING)
    }


def submit(script: Path, options: Sequence[str], environment: Mapping[str, str]) -> str:
    """Submit a batch script that will run with that environment; return the job's id.

    `options` are repeated on the command line, because there they override a user's SBATCH_
    variables, which those in a script do not. If it is uncertain whether sbatch has submitted the
    job, it is looked for. Raises SlurmError.
    """
    command = ("sbatch", "--parsable", *options, str(script))
    try:
        return _parse_job_id(run_command(*command, environment=without_job_variables(environment)))
    except SlurmError as error:
        if UNCERTAIN.search(str(error)) and (job := _find_late_job(script, str(error))):
            return job
        raise


def _parse_job_id(printed: str) -> str:
    lines = printed.splitlines()
    job = lines[-1].partition(";")[0] if lines else ""
    if not job.isdecimal():
        output = formatting.single_line(printed)[:200] or "nothing"
        raise SlurmError(f"sbatch printed no job id but {output}")
    return job


def _find_late_job(script: Path, reason: str) -> str:
    deadline = time.monotonic() + LATE_JOB_S
    while True:
        try:
            job = find_submitted(script)
        except SlurmError as error:
            text = f"{reason}; it is unknown whether the job was submitted: {error}"
            raise SlurmError(text) from None
        if job or time.monotonic() > deadline:
            return job
        time.sleep(1.0)


def find_submitted(script: Path) -> str:
    """Return the id of this user's last job with that script, even if it has just ended.

    Empty where there is none. Raises SlurmError.
    """
    query = ("--noheader", f"--user={os.getuid()}", "--states=all", "--format=%A %o")
    jobs = []
    for row in run_command("squeue", *query).splitlines():
        job, _, command = row.partition(" ")
        if command.strip() == str(script):
            jobs.append(int(job))
    return str(max(jobs)) if jobs else ""


def cancel(job: str) -> None:
    """Cancel a job; one that has ended is left alone. Raises SlurmError."""
    run_command("scancel", "--quiet", job)


def requeue(job: str) -> None:
    """Queue a job again, even one that has ended. Raises SlurmError."""
    run_command("scontrol", "requeue", job)


@cache
def expand_hostlist(nodes: str) -> tuple[str, ...]:
    """Return the nodes of a list in Slurm's notation, such as "n[1-2,7]". Raises SlurmError."""
    if not nodes:
        return ()
    if "[" not in nodes and "," not in nodes:
        return (nodes,)
    return tuple(run_command("scontrol", "show", "hostnames", nodes).split())


def _error_text(output: str) -> str:
    """Return error output as one line, without the program names that Slurm puts in front."""
    lines = (line.rpartition("error: ")[2] for line in output.splitlines())
    return formatting.single_line("; ".join(line for line in lines if line.strip()))
