"""The machines of a cluster: its partitions, which nodes are down, and their addresses."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import cache

from distrain.runners.errors import SlurmError
from distrain.runners.launchers.slurm.commands import run_command
from distrain.runners.system import network

LIST_NODES = ("sinfo", "--noheader", "--Node")
# For a person who waits; Slurm itself gives up a controller that does not answer after 9 s.
INTERACTIVE_S = 15.0


def submission_problems(partition: str | None) -> list[tuple[str, str]]:
    """Return why no job can be submitted to a partition, or several; each with its config key."""
    if not shutil.which("sbatch"):
        return [("launcher", "sbatch was not found: this is not a login node of a Slurm cluster")]
    query = ("sinfo", "--noheader", "--all", "--format=%R")
    try:
        known = run_command(*query, timeout_s=INTERACTIVE_S).split()
    except SlurmError as error:
        return [("launcher", f"Slurm does not respond: {error}")]
    available = ", ".join(dict.fromkeys(known))
    wanted = partition.split(",") if partition else []
    return [
        ("slurm.partition", f"there is no partition {name}; available: {available}")
        for name in wanted
        if name not in known
    ]


@cache
def max_time(partition: str) -> str:
    """Return the time limit of a partition as Slurm writes it: "00:10:00". Raises SlurmError."""
    shown = run_command("scontrol", "--oneliner", "show", "partition", partition)
    if found := re.search(r" MaxTime=(\S+)", shown):
        return found[1]
    raise SlurmError(f"scontrol shows no time limit of partition {partition}")


def down_nodes(nodes: Sequence[str]) -> list[str]:
    """Return which of these nodes are down; empty where Slurm does not tell."""
    if not nodes:
        return []
    query = (f"--nodes={','.join(nodes)}", "--states=down", "--format=%N")
    try:
        return sorted(set(run_command(*LIST_NODES, *query).split()))
    except SlurmError:
        return []


def any_address(partition: str | None) -> str:
    """Return the address, a name or number, of a node in a partition (None: the default one).

    Raises SlurmError.
    """
    option = [f"--partition={partition}"] if partition else []
    output = run_command(*LIST_NODES, *option, "--format=%o %P")
    rows = [row.split() for row in output.splitlines()]
    if not rows:
        where = f" in partition {partition}" if partition else ""
        raise SlurmError(f"Slurm has no nodes{where}")
    for address, name in rows:
        if name.endswith("*"):  # the default partition
            return address
    return rows[0][0]


def address_of_node(node: str) -> str:
    """Return the address of a node; its name in Slurm may mean nothing elsewhere.

    Raises SlurmError.
    """
    return run_command(*LIST_NODES, f"--nodes={node}", "--format=%o").split()[0]


def own_address(partition: str | None) -> str:
    """Return the address of this host for the nodes of a partition.

    Raises SlurmError, or DistrainError where no route leads to them.
    """
    return network.own_address(any_address(partition))
