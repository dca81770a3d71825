"""Options of sbatch that `slurm.extra` must not contain.

These are options that another key decides, and those with which sbatch does something else than
queue one job and print its id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LOG = "the output of the job is logs/job.log of the run"
_NO_JOB = "with it, sbatch queues no job"
REASONS = {
    "array": "a run is one job",
    "clusters": "the run looks for its job on this cluster",
    "error": _LOG,
    "help": _NO_JOB,
    "no-requeue": "set slurm.requeue = false",
    "nodes": "set slurm.nodes",
    "ntasks": "set slurm.tasks_per_node",
    "ntasks-per-core": "set slurm.tasks_per_node",
    "ntasks-per-gpu": "set slurm.tasks_per_node",
    "ntasks-per-node": "set slurm.tasks_per_node",
    "ntasks-per-socket": "set slurm.tasks_per_node",
    "open-mode": _LOG,
    "output": _LOG,
    "parsable": "distrain sets it itself",
    "partition": "set slurm.partition",
    "requeue": "set slurm.requeue = true",
    "test-only": _NO_JOB,
    "usage": _NO_JOB,
    "version": _NO_JOB,
    "wait": "the run itself waits for its job",
    "wrap": "distrain writes the job's script",
}
_SHORT = {
    "a": "array",
    "M": "clusters",
    "e": "error",
    "h": "help",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "V": "version",
    "W": "wait",
}
# Letters that take no value may come before it: -HW.
_LETTERS = re.compile(f"-[HIkOQsvX]*([{''.join(_SHORT)}])")


def problems(extra: Sequence[str]) -> list[str]:
    """Return a sentence for each option that must not be in `slurm.extra`."""
    return [
        f"{option!r} cannot be set here: {reason}"
        for option in extra
        if (reason := _reason(option))
    ]


def _reason(option: str) -> str:
    if letter := _LETTERS.match(option):
        return REASONS[_SHORT[letter[1]]]
    if not re.match("--?[A-Za-z]", option):
        return "an option begins with -, and contains its value: --comment=words"
    name = option.removeprefix("--").partition("=")[0]
    # sbatch accepts the beginning of a name.
    return next((reason for full, reason in REASONS.items() if full.startswith(name)), "")
