"""Whether a config can run here: all its problems at once, before anything is started."""

from __future__ import annotations

import os
from pathlib import Path

from distrain.models import importing
from distrain.models.catalog import problems as task_problems
from distrain.models.errors import TaskError
from distrain.runners import horovod
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.programs import program_problems
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system import scheduler_env


def check(config: RunConfig, cwd: str | None = None) -> Plan:
    """Return the plan of a config that can run here; raises ConfigError with all problems at once.

    `cwd` is that of `launch`.
    """
    problems: list[tuple[str, str]] = []
    plan = None
    try:
        plan = plan_here(config)
    except ConfigError as error:
        problems += error.problems
    base_dir = Path(cwd or "")
    if config.is_script:
        problems += program_problems(config, base_dir)
    else:
        problems += _file_problems(config, base_dir)
    problems += _rank_problems(config)
    if config.strategy == "horovod" or (plan and plan.backend == "horovod"):
        problems += horovod.problems(config.horovod.via, plan.devices if plan else [])
    if problems or not plan:
        raise ConfigError(problems)
    return plan


def _file_problems(config: RunConfig, base_dir: Path) -> list[tuple[str, str]]:
    """Return (key, reason) of missing modules, data and checkpoints; imports nothing."""
    folders = importing.user_folders(config.code_dir, base_dir)
    root = config.data.root
    problems = task_problems(
        task=config.task.name,
        model=config.model.name,
        data=config.data.name,
        root=str(base_dir / os.path.expanduser(root)) if root else root,
        download=config.data.download,
        folders=folders,
    )
    for key, name in {
        "strategy": config.strategy,
        "train.optimizer": config.train.optimizer,
    }.items():
        if ":" in name:
            try:
                importing.check(key, name, folders)
            except TaskError as error:
                problems.append((error.key, error.sentence))
    if config.checkpoint.load:
        path = base_dir / config.checkpoint.load
        if not os.path.isfile(path):
            problems.append(("checkpoint.load", f"there is no file {path}"))
    if problem := scheduler_env.meeting_file_problem(config.dist.init_method):
        problems.append(("dist.init_method", problem))
    return problems


def _rank_problems(config: RunConfig) -> list[tuple[str, str]]:
    """Return (key, reason) if this process must join the run of another, which keeps the record."""
    problems = []
    if config.dist.node_rank:
        text = "a host that joins keeps no record; use `distrain run` or `distrain join`"
        problems.append(("dist.node_rank", text))
    rank = os.environ.get("RANK") or "0"
    if config.launcher == "env" and rank != "0":
        text = f"rank {rank} keeps no record; `distrain run` joins the run of rank 0"
        problems.append(("launcher", text))
    return problems
