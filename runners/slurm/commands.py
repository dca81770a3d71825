"""Slurm's commands, each within a bounded time: what they print, or a sentence of why not."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from runners import words
from runners.errors import SlurmError

PATIENCE_S = 60.0
LATE_S = 10.0  # for a job to be seen whose sbatch gave up
# After which nobody knows whether the job is there.
UNSURE = re.compile("did not answer|timed out|no job's id", re.IGNORECASE)
# Defaults of a person's own, for other questions than ours.
OTHERS = ("SLURM_", "SQUEUE_", "SINFO_", "SCANCEL_")
# What the config decides, or what would make another job of it: see `runners.slurm.extra`.
MISLEADING = {"SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_ERROR", "SBATCH_WAIT"}


def asked(
    *command: str, environment: Mapping[str, str] | None = None, patience: float | None = None
) -> str:
    """What a command prints, times as Unix seconds. Raises SlurmError, Slurm's own words last, also
    after `patience` seconds without an answer.
    """
    patience = PATIENCE_S if patience is None else patience
    variables = outside(os.environ) | {"SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command,
            env=variables if environment is None else environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
        )
    except FileNotFoundError:
        why = f"there is no {command[0]}: this is no login node of a Slurm cluster"
        raise SlurmError(why) from None
    except OSError as error:
        raise SlurmError(f"{command[0]} could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired as late:
        said = _reason((late.stderr or b"").decode(errors="replace"))
        why = f"{command[0]} did not answer within {patience:g} s{said and f': {said}'}"
        raise SlurmError(why) from None
    if done.returncode:
        said = _reason(done.stderr) or f"exit code {done.returncode}"
        raise SlurmError(f"{command[0]} refused: {said}")
    return done.stdout.strip()


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what a job around this process set, or a person for other jobs than ours."""
    kept = ("SLURM_CONF", "SLURM_CONF_SERVER")
    return {
        name: value
        for name, value in environment.items()
        if name in kept or not (name.startswith(OTHERS) or name in MISLEADING)
    }


def submit(script: Path, options: Sequence[str], environment: Mapping[str, str]) -> str:
    """Queue a batch script, which finds that environment; its job's id. Raises SlurmError.

    Options on the command line go before a person's SBATCH_ variables, those of a script do not.
    Where sbatch does not tell whether the job is there, it is looked for.
    """
    command = ("sbatch", "--parsable", *options, str(script))
    try:
        return _id(asked(*command, environment=outside(environment)))
    except SlurmError as error:
        if UNSURE.search(str(error)) and (job := _late(script, str(error))):
            return job
        raise


def _id(printed: str) -> str:
    *_, last = ["", *printed.splitlines()]
    job = last.partition(";")[0]
    if not job.isdecimal():
        said = words.line(printed)[:200] or "nothing"
        raise SlurmError(f"sbatch told no job's id, it said: {said}")
    return job


def _late(script: Path, why: str) -> str:
    deadline = time.monotonic() + LATE_S
    while True:
        try:
            job = submitted(script)
        except SlurmError as error:
            unknown = f"{why}, and whether the job is there is not known: {error}"
            raise SlurmError(unknown) from None
        if job or time.monotonic() > deadline:
            return job
        time.sleep(1.0)


def submitted(script: Path) -> str:
    """The id of the last job of ours with that script, also of one that ended just now; empty
    where there is none. Raises SlurmError.
    """
    rows = asked(
        "squeue", "--noheader", f"--user={os.getuid()}", "--states=all", "--format=%A %o"
    ).splitlines()
    found = [row.partition(" ")[::2] for row in rows]
    jobs = [int(job) for job, command in found if command.strip() == str(script)]
    return str(max(jobs)) if jobs else ""


def cancel(job: str) -> None:
    """One that has ended is let be. Raises SlurmError."""
    asked("scancel", "--quiet", job)


def requeue(job: str) -> None:
    """Queue it again, one that has ended as well. Raises SlurmError."""
    asked("scontrol", "requeue", job)


@cache
def hostnames(nodes: str) -> tuple[str, ...]:
    """The nodes of a list as Slurm writes it, "n[1-2,7]". Raises SlurmError."""
    if not {"[", ","} & set(nodes):
        return (nodes,) if nodes else ()
    return tuple(asked("scontrol", "show", "hostnames", nodes).split())


def _reason(said: str) -> str:
    """The lines of a complaint as one, without the names that Slurm puts before them."""
    lines = (line.rpartition("error: ")[2] for line in said.splitlines())
    return words.line("; ".join(line for line in lines if line.strip()))
