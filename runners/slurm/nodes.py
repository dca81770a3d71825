"""The machines of a cluster: its partitions, which nodes are down, and where they are reached."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import cache

from runners import network
from runners.errors import SlurmError
from runners.slurm.commands import asked

LISTED = ("sinfo", "--noheader", "--Node")
SOON_S = 15.0  # somebody waits; a controller that is gone is given up by Slurm itself after 9 s


def problems(partition: str | None) -> list[tuple[str, str]]:
    """Why no job can be submitted here, to that partition or to several; each with its key."""
    if not shutil.which("sbatch"):
        return [("launcher", "there is no sbatch: this is no login node of a Slurm cluster")]
    try:
        there = asked("sinfo", "--noheader", "--all", "--format=%R", patience=SOON_S).split()
    except SlurmError as error:
        return [("launcher", f"Slurm cannot be asked: {error}")]
    wanted = partition.split(",") if partition else []
    known = ", ".join(dict.fromkeys(there))
    return [
        ("slurm.partition", f"there is no partition {name}; there are {known}")
        for name in wanted
        if name not in there
    ]


@cache
def longest(partition: str) -> str:
    """The time limit of a partition in Slurm's words, "00:10:00". Raises SlurmError."""
    shown = asked("scontrol", "--oneliner", "show", "partition", partition)
    if found := re.search(r" MaxTime=(\S+)", shown):
        return found[1]
    raise SlurmError(f"scontrol tells no time limit of partition {partition}")


def down(nodes: Sequence[str]) -> list[str]:
    """Which of them do not answer; empty where Slurm does not tell."""
    if not nodes:
        return []
    which = (f"--nodes={','.join(nodes)}", "--states=down", "--format=%N")
    try:
        return sorted(set(asked(*LISTED, *which).split()))
    except SlurmError:
        return []


def address(partition: str | None) -> str:
    """Where a node of that partition, or of the usual one, is reached: a name or a number.

    Raises SlurmError.
    """
    where = [f"--partition={partition}"] if partition else []
    rows = [row.split() for row in asked(*LISTED, *where, "--format=%o %P").splitlines()]
    if not rows:
        raise SlurmError(f"Slurm has no nodes{f' in partition {partition}' if partition else ''}")
    # A star marks the partition of jobs that name none.
    return next((node for node, name in rows if name.endswith("*")), rows[0][0])


def address_of(node: str) -> str:
    """Where a node is reached, by its name in Slurm, which may mean nothing elsewhere.

    Raises SlurmError.
    """
    return asked(*LISTED, f"--nodes={node}", "--format=%o").split()[0]


def own_address(partition: str | None) -> str:
    """This host's address towards the nodes of a partition. Raises SlurmError, or DistrainError
    where no way leads to them.
    """
    return network.own_address(address(partition))
