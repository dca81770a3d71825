"""What may not stand in `slurm.extra`: options that another key decides, and those with which
sbatch would do something else than queue one job and tell its id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LOG = "what the job prints is logs/job.log of the run"
_NOTHING = "with it sbatch queues no job"
WHY = {
    "array": "a run is one job",
    "clusters": "the run looks for its job on this cluster",
    "error": _LOG,
    "help": _NOTHING,
    "no-requeue": "set slurm.requeue = false",
    "nodes": "set slurm.nodes",
    "ntasks": "set slurm.tasks_per_node",
    "ntasks-per-core": "set slurm.tasks_per_node",
    "ntasks-per-gpu": "set slurm.tasks_per_node",
    "ntasks-per-node": "set slurm.tasks_per_node",
    "ntasks-per-socket": "set slurm.tasks_per_node",
    "open-mode": _LOG,
    "output": _LOG,
    "parsable": "distrain itself asks for it",
    "partition": "set slurm.partition",
    "requeue": "set slurm.requeue = true",
    "test-only": _NOTHING,
    "usage": _NOTHING,
    "version": _NOTHING,
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
# Letters that take no value may stand before: -HW.
_LETTERS = re.compile(f"-[HIkOQsvX]*([{''.join(_SHORT)}])")


def problems(extra: Sequence[str]) -> list[str]:
    """A sentence for each option that may not stand there."""
    return [f"{option!r} cannot be here: {why}" for option in extra if (why := _why(option))]


def _why(option: str) -> str:
    if letter := _LETTERS.match(option):
        return WHY[_SHORT[letter[1]]]
    if not re.match("--?[A-Za-z]", option):
        return "an option begins with -, and its value is part of it: --comment=words"
    name = option.removeprefix("--").partition("=")[0]
    # sbatch takes the beginning of a name for the name.
    return next((why for full, why in WHY.items() if full.startswith(name)), "")
