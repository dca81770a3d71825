"""The batch script of a run: what is asked of Slurm, the environment of the ranks, and one srun.

A node agent for each host, or for each rank, does the rest. `exec` makes srun the job's own
process: it takes Slurm's signals, ends when all tasks have, and its exit code is the job's.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from runners import words
from runners.config import RunConfig
from runners.connecting import TOKEN, TOKEN_FILE, Endpoint
from runners.plan import Plan
from runners.state import short_id

SCRIPT = "job.sh"  # in the record
LOG = "job.log"  # of srun and the node agents, beside the ranks' own
NODE, RECORDING = "runners.launchers.node", "runners.slurm.recording"


def batch_script(config: RunConfig, plan: Plan, folder: Path, endpoint: Endpoint) -> str:
    """The whole script. The run's token is named by its file only: scripts are readable by all."""
    exports = environment(config, plan, folder, endpoint)
    asked = [words.line(option) for option in quoted(options(config, plan, folder))]
    parts = [
        ["#!/bin/bash", f"# Run {folder.name}; distrain wrote this and submits it."],
        [f"#SBATCH {option}" for option in asked],
        config.slurm.prologue,
        [f"export {name}={shlex.quote(value)}" for name, value in exports.items()],
        ["exec " + " \\\n    ".join(map(shlex.join, steps(config, plan)))],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def options(config: RunConfig, plan: Plan, folder: Path) -> list[str]:
    """What is asked of Slurm, as options of sbatch; what the config leaves unset is not."""
    slurm, tasks = config.slurm, tasks_per_node(config, plan)
    log = str(folder / "logs" / LOG).replace("%", "%%")
    wanted = {
        "job-name": short_id(folder.name),
        "output": log,
        "open-mode": "append",
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "nodes": plan.nodes,
        "ntasks-per-node": tasks,
        "cpus-per-task": cpus_per_task(config, plan),
        "gpus-per-node": slurm.gpus_per_node or None,
        "mem": slurm.memory,
        "time": slurm.time,
    }
    told = [f"--{name}={value}" for name, value in wanted.items() if value is not None]
    return [*told, "--requeue" if slurm.requeue else "--no-requeue", *slurm.extra]


def quoted(options: list[str]) -> list[str]:
    """As a person writes them: --output='a b'."""
    parts = (option.partition("=") for option in options)
    return [name + equals + (shlex.quote(value) if value else "") for name, equals, value in parts]


def tasks_per_node(config: RunConfig, plan: Plan) -> int:
    return 1 if config.slurm.via == "torchrun" else plan.ranks_per_node


def cpus_per_task(config: RunConfig, plan: Plan) -> int | None:
    """A torchrun has all its ranks' cores, one for each where nobody said how many."""
    cores = config.slurm.cpus_per_task
    if config.slurm.via == "torchrun" and plan.ranks_per_node > 1:
        return (cores or 1) * plan.ranks_per_node
    return cores


def environment(config: RunConfig, plan: Plan, folder: Path, endpoint: Endpoint) -> dict[str, str]:
    """What a node agent needs, whatever the cluster passes on of the login node's variables."""
    ours = {
        "DISTRAIN_RUN": str(folder),
        "DISTRAIN_SOCKET": "" if config.slurm.report == "files" else endpoint.remote,
        TOKEN_FILE: str(folder / TOKEN),
        "OMP_NUM_THREADS": str(plan.threads),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if config.slurm.via == "srun":
        ours["DISTRAIN_TASK"] = "rank"
    return ours


def steps(config: RunConfig, plan: Plan) -> list[list[str]]:
    """What the job becomes: srun with a node agent for each task, and before it, unless ranks are
    to report by TCP in any case, what finds out whether they can.
    """
    ways = {"tcp": [], "auto": [python(RECORDING)], "files": [python(RECORDING)]}
    return [*ways[config.slurm.report], step(config, plan), python(NODE)]


def step(config: RunConfig, plan: Plan) -> list[str]:
    """srun with what it does not take over from the job by itself, in every version and site."""
    cores = cpus_per_task(config, plan)
    return [
        "srun",
        "--kill-on-bad-exit=1",
        "--wait=0",  # for the last task, however long it takes after the first
        "--export=ALL",
        "--distribution=block",  # ranks of a node follow each other
        *([f"--cpus-per-task={cores}"] if cores else []),
    ]


def python(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]
