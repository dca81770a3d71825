"""Slurm's commands, each within a bounded time: what they print, or a sentence of why not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from runners import words
from runners.errors import SlurmError

PATIENCE_S = 60.0


def asked(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints, times as Unix seconds. Raises SlurmError, Slurm's own words last."""
    variables = outside(os.environ) | {"SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command,
            env=variables if environment is None else environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
        )
    except FileNotFoundError:
        why = f"there is no {command[0]}: this is no login node of a Slurm cluster"
        raise SlurmError(why) from None
    except subprocess.TimeoutExpired:
        why = f"{command[0]} did not answer within {PATIENCE_S:g} s"
        raise SlurmError(why) from None
    if done.returncode:
        said = _reason(done.stderr) or f"exit code {done.returncode}"
        raise SlurmError(f"{command[0]} refused: {said}")
    return done.stdout.strip()


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what a job around this process set: it would speak for another job."""
    kept = ("SLURM_CONF", "SLURM_CONF_SERVER")
    return {k: v for k, v in environment.items() if not k.startswith("SLURM_") or k in kept}


def submit(script: Path, options: Sequence[str], environment: Mapping[str, str]) -> str:
    """Queue a batch script, which finds that environment; its job's id. Raises SlurmError.

    Options on the command line go before a person's SBATCH_ variables, those of a script do not.
    """
    command = ("sbatch", "--parsable", *options, str(script))
    printed = asked(*command, environment=outside(environment))
    return printed.splitlines()[-1].partition(";")[0]


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
