"""Which rank this process is, in a program that calls `distrain.init`."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from distrain.runners.errors import ConfigError
from distrain.runners.instrumentation.plain_values import to_whole
from distrain.runners.system.rank_identity import RANK_VARIABLES

# The pid of a rank, set by `init` or by distrain where it runs a Python program: a process that
# inherits it is none, and one that has it and cannot report has executed another program.
PROCESS_VARIABLE = "DISTRAIN_OBSERVED_PROCESS"
# Set by distrain in the environment of all ranks that it starts.
RUN_VARIABLE = "DISTRAIN_RUN"
# "0": programs that distrain has not started are not recorded.
OBSERVE_VARIABLE = "DISTRAIN_OBSERVE"
# Set by distrain where it starts a program that cannot report by itself.
EXECUTABLE_VARIABLE = "DISTRAIN_EXECUTABLE"
# A record with more ranks would be too large to be read.
MOST_RANKS = 65_536


class Position(NamedTuple):
    """Which rank a process is."""

    rank: int
    world_size: int
    local_rank: int
    local_size: int


def find_position(rank: int | None, world_size: int | None) -> Position | None:
    """Return which rank this process is; None if it is no rank.

    The arguments decide, else the process group, else the environment; a single process is rank 0.
    Loader workers and other children of a rank are no ranks, unless they are given one. Raises
    ConfigError if there is no such rank, or if only `world_size` is given and is another one.
    """
    is_off = os.environ.get(OBSERVE_VARIABLE) == "0" and not is_in_run()
    if is_off or (rank is None and _is_child_of_rank()):
        return None
    environment = _rank_variables()
    local_rank = _read_variable(environment, "LOCAL_RANK", 0)
    if rank is None:
        rank, size = _in_process_group() or (
            _read_variable(environment, "RANK", 0),
            _read_variable(environment, "WORLD_SIZE", 1),
        )
        if world_size is not None and to_whole(world_size, "world_size") != size:
            text = f"distrain.init(world_size={world_size}) needs a rank"
            raise ConfigError(f"{text}: without one, this is rank {rank} of {size}")
    else:
        rank = to_whole(rank, "rank")
        if world_size is None:
            size = _read_variable(environment, "WORLD_SIZE", rank + 1)
        else:
            size = to_whole(world_size, "world_size")
    if size > MOST_RANKS:
        raise ConfigError(f"{size:,} ranks cannot be recorded, only {MOST_RANKS:,}")
    if not 0 <= rank < size:
        raise ConfigError(f"rank {rank} of {size} does not exist: ranks count from 0")
    local_size = max(1, _read_variable(environment, "LOCAL_WORLD_SIZE", size))
    return Position(rank, size, local_rank or rank % local_size, local_size)


def _read_variable(environment: Mapping[str, str], name: str, default: int) -> int:
    return to_whole(environment.get(name, default), name)


def is_in_run() -> bool:
    """Return whether distrain has started the program that this process belongs to."""
    return RUN_VARIABLE in os.environ


def _is_child_of_rank() -> bool:
    if rank_pid := os.environ.get(PROCESS_VARIABLE):
        return rank_pid != str(os.getpid())
    if is_in_run() and EXECUTABLE_VARIABLE not in os.environ:
        return True
    return multiprocessing.parent_process() is not None


def _rank_variables() -> dict[str, str]:
    """Return the variables by which launchers and schedulers identify a rank, in torch's names."""
    environment = dict(os.environ)
    for name, others in RANK_VARIABLES.items():
        for other in others:
            if other in environment:
                environment.setdefault(name, environment[other])
    if "RANK" not in environment and "SLURM_STEP_ID" in environment:  # a task of srun
        names = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID"}
        names["WORLD_SIZE"] = "SLURM_STEP_NUM_TASKS"
        if all(name in environment for name in names.values()):
            environment |= {name: environment[other] for name, other in names.items()}
    return environment


def _in_process_group() -> tuple[int, int] | None:
    """Return rank and size in torch's process group, if the program has one."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()
