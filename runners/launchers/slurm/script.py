"""The batch script of a run: options of sbatch, the environment of the ranks, and one srun.

srun starts a node agent for each host, or for each rank, which does the rest. `exec` makes srun the
job's own process: it receives Slurm's signals and ends when all tasks have, with the job's exit
code.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.client import TOKEN_FILE_NAME, TOKEN_FILE_VARIABLE, ServerAddresses
from distrain.runners.records.run_ids import short_id

SCRIPT = "job.sh"  # in the record
LOG = "job.log"  # of srun and the node agents, next to the logs of the ranks
NODE_AGENT = "distrain.runners.launchers.node"
RELAY = "distrain.runners.supervision.relay"


def batch_script(config: RunConfig, plan: Plan, folder: Path, addresses: ServerAddresses) -> str:
    """Return the whole script.

    Everybody can read a job's script, so it contains the file of the run's token, not the token.
    """
    options = quote_options(sbatch_options(config, plan, folder))
    variables = agent_environment(config, plan, folder, addresses)
    parts = [
        ["#!/bin/bash", f"# Run {folder.name}; distrain wrote this and submits it."],
        [f"#SBATCH {formatting.single_line(option)}" for option in options],
        config.slurm.prologue,
        [f"export {name}={shlex.quote(value)}" for name, value in variables.items()],
        ["exec " + " \\\n    ".join(map(shlex.join, job_command(config, plan)))],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def sbatch_options(config: RunConfig, plan: Plan, folder: Path) -> list[str]:
    """Return the options of sbatch; what the config leaves unset is left out."""
    slurm = config.slurm
    log = str(folder / "logs" / LOG).replace("%", "%%")
    values = {
        "job-name": short_id(folder.name),
        "output": log,
        "open-mode": "append",
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "nodes": plan.nodes,
        "ntasks-per-node": _tasks_per_node(config, plan),
        "cpus-per-task": _cpus_per_task(config, plan),
        "gpus-per-node": slurm.gpus_per_node or None,
        "mem": slurm.memory,
        "time": slurm.time,
    }
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    options.append("--requeue" if slurm.requeue else "--no-requeue")
    return options + slurm.extra


def quote_options(options: list[str]) -> list[str]:
    """Return options as a person writes them in a shell: --output='a b'."""
    quoted = []
    for option in options:
        name, equals, value = option.partition("=")
        quoted.append(f"{name}{equals}{shlex.quote(value)}" if value else name + equals)
    return quoted


def _tasks_per_node(config: RunConfig, plan: Plan) -> int:
    return 1 if config.slurm.via == "torchrun" else plan.ranks_per_node


def _cpus_per_task(config: RunConfig, plan: Plan) -> int | None:
    """Return the cores of a task; one with torchrun needs those of all ranks on its node."""
    cores = config.slurm.cpus_per_task
    if config.slurm.via == "torchrun" and plan.ranks_per_node > 1:
        return (cores or 1) * plan.ranks_per_node
    return cores


def agent_environment(
    config: RunConfig, plan: Plan, folder: Path, addresses: ServerAddresses
) -> dict[str, str]:
    """Return what a node agent needs, even if the cluster passes on no variables of this host."""
    variables = {
        "DISTRAIN_RUN": str(folder),
        "DISTRAIN_SOCKET": "" if config.slurm.report == "files" else addresses.remote,
        TOKEN_FILE_VARIABLE: str(folder / TOKEN_FILE_NAME),
    }
    if not config.is_script:
        variables |= {
            "OMP_NUM_THREADS": str(plan.threads),
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
        }
    if config.slurm.via == "srun":
        variables["DISTRAIN_TASK"] = "rank"
    return variables


def job_command(config: RunConfig, plan: Plan) -> list[list[str]]:
    """Return the words of the job's command, in lines: srun with a node agent for each task.

    Unless ranks report by TCP in any case, the relay comes first, which finds out whether they can.
    """
    lines = [_srun(config, plan), _python(NODE_AGENT)]
    if config.slurm.report != "tcp":
        lines.insert(0, _python(RELAY))
    return lines


def _srun(config: RunConfig, plan: Plan) -> list[str]:
    """Return srun with what not every version and site takes over from the job."""
    words = [
        "srun",
        "--kill-on-bad-exit=1",
        "--wait=0",  # for the last task, however long it takes after the first
        "--export=ALL",
        "--distribution=block",  # consecutive ranks on a node
    ]
    if cores := _cpus_per_task(config, plan):
        words.append(f"--cpus-per-task={cores}")
    return words


def _python(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]
