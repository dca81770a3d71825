"""Slurm as this host sees it, for a person who wants to know whether and how to use it."""

from __future__ import annotations

import shutil
from typing import Any

from distrain.runners.doctor.capabilities import NO_SBATCH
from distrain.runners.errors import DistrainError
from distrain.runners.launchers.slurm.commands import run_command
from distrain.runners.launchers.slurm.nodes import INTERACTIVE_S, own_address


def describe_slurm() -> dict[str, Any]:
    """Return what Slurm answers, within bounded time.

    `version`: of Slurm, None without it.
    `partitions`: {name, limit, nodes, gpus} of each, as sinfo prints them; the default has a star.
    `address`: where the nodes would report to.
    `why`: the reason why some of this is missing.
    """
    report: dict[str, Any] = {"version": None, "partitions": [], "address": None, "why": ""}
    if not shutil.which("sbatch"):
        report["why"] = NO_SBATCH
        return report
    try:
        report["version"] = run_command("sinfo", "--version", timeout_s=INTERACTIVE_S)
        report["partitions"] = _partitions()
        report["address"] = own_address(None)
    except DistrainError as error:
        report["why"] = str(error)
    return report


def _partitions() -> list[dict[str, str]]:
    output = run_command("sinfo", "--noheader", "--format=%P|%l|%D|%G", timeout_s=INTERACTIVE_S)
    partitions = []
    for line in output.splitlines():
        if line.count("|") != 3:  # the name of a cluster, where $SLURM_CLUSTERS is set
            continue
        name, limit, nodes, gpus = line.split("|")
        gpus = gpus.replace("(null)", "")
        partitions.append({"name": name, "limit": limit, "nodes": nodes, "gpus": gpus})
    return partitions
