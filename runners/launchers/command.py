"""The command line and the environment of a launcher process.

`launcher_command` returns the argument vector that the supervisor starts: a launcher module, or
for `inline` the one rank itself. Ranks read everything else from the environment.
"""

from __future__ import annotations

import math
import os
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.runners.protocol.client import (
    TOKEN_FILE_NAME,
    TOKEN_FILE_VARIABLE,
    ServerAddresses,
    read_user_token,
)
from distrain.runners.system import scratch
from distrain.runners.system.network import choose_interface
from distrain.runners.system.rank_identity import RANK_VARIABLES
from distrain.runners.system.scheduler_env import GIVEN

if TYPE_CHECKING:
    from distrain.runners.config.plan import Plan
    from distrain.runners.config.schema import RunConfig

TRAINING_RANK = "distrain.runners.training.worker"
SCRIPT_RANK = "distrain.runners.instrumentation.script_rank"
LAUNCHER_MODULES = {
    "spawn": "distrain.runners.launchers.spawn",
    "torchrun": "distrain.runners.launchers.torchrun",
    "horovodrun": "distrain.runners.launchers.horovodrun",
    "slurm": "distrain.runners.launchers.slurm.launcher",
    "env": "distrain.runners.launchers.env",
}

TORCHRUN_GRACE_S = 30  # longer than it takes to read the stacks of ranks that are to be ended
PREVIOUS_RUN = "DISTRAIN_PREVIOUS_RUN"  # the folder of the run that a script continues
SCRIPT_FOLDER = "DISTRAIN_SCRIPT_FOLDER"  # where a script saves, if not in the record

# Arguments of launchers `node` (the agent of the first host) and `env` (rank 0, or one that joins).
FIRST_NODE = "first"
KEEP_TOKEN, SHARE_TOKEN = "keep-token", "share-token"
JOIN = "join"

# Variables that a launcher around this process has set for its own ranks: they would mislead ours.
INHERITED = {
    *RANK_VARIABLES,
    *chain(*RANK_VARIABLES.values()),
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "GROUP_RANK",
    "DISTRAIN_NODE",
    "DISTRAIN_TOKEN",
    PREVIOUS_RUN,
    SCRIPT_FOLDER,
    scratch.VARIABLE,
    TOKEN_FILE_VARIABLE,
}


def launcher_command(config: RunConfig, plan: Plan) -> list[str]:
    """Return the argument vector of the launcher process."""
    if config.launcher == "inline":
        return rank_command(config)
    module = LAUNCHER_MODULES[config.launcher]
    arguments = [str(plan.world_size)]
    if config.launcher == "torchrun":
        arguments += [str(config.dist.max_restarts), *rank_command(config)]
    if config.launcher == "env":
        arguments = [KEEP_TOKEN if read_user_token() else SHARE_TOKEN]
    if config.dist.nodes > 1:
        module = "distrain.runners.launchers.node"
        arguments = [FIRST_NODE]
    return [sys.executable, "-P", "-m", module, *arguments]


def rank_command(config: RunConfig) -> list[str]:
    """Return the argument vector of a rank, which reads everything else from its environment."""
    # Options instead of variables: the processes that a script starts must not inherit them.
    return [sys.executable, "-P", "-u", "-m", SCRIPT_RANK if config.is_script else TRAINING_RANK]


def launcher_environment(
    config: RunConfig, plan: Plan, folder: Path, addresses: ServerAddresses
) -> dict[str, str]:
    """Return the environment of the launcher and of its ranks, equal for every launcher."""
    own = {
        "DISTRAIN_RUN": str(folder),
        "DISTRAIN_SOCKET": addresses.remote or addresses.local,
        "DISTRAIN_SUPERVISOR": str(os.getpid()),
    }
    if addresses.local and not plan.scheduled:
        own[scratch.VARIABLE] = str(Path(addresses.local.removeprefix("unix:")).parent)
    if addresses.remote:
        own[TOKEN_FILE_VARIABLE] = str(folder / TOKEN_FILE_NAME)
    if config.is_script:
        own |= _script_variables(config, folder)
    else:
        own |= _training_variables(config, plan)
    communicates = plan.world_size > 1 or not config.is_script
    if communicates and not (plan.spread or plan.scheduled):  # else each host finds out for itself
        own |= choose_interface(config.dist.interface).variables
    own |= _device_variables(config, plan)
    return clean_environment(config.launcher) | own


def _training_variables(config: RunConfig, plan: Plan) -> dict[str, str]:
    """Return what the training loop's ranks need in addition."""
    variables = {
        "OMP_NUM_THREADS": str(plan.threads),
        # A folder called `models` in the current folder must not hide ours.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if config.train.deterministic:
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return variables


def _script_variables(config: RunConfig, folder: Path) -> dict[str, str]:
    """Return the user's variables; apart from these a script sees those of its launcher only."""
    from distrain.runners.records.lineage import find_previous  # no other launcher process needs it

    variables = {}
    if previous := find_previous(folder):
        variables[PREVIOUS_RUN] = str(previous)
    if config.launcher != "inline":
        # Keep the last collectives of each rank, to inspect them when one hangs.
        variables["TORCH_FR_BUFFER_SIZE"] = os.environ.get("TORCH_FR_BUFFER_SIZE", "2000")
        # torchrun waits so long for ranks that it has asked to end: longer than the supervisor,
        # which can name the rank that a stop waits for only while that is still there.
        timeout = math.ceil(config.report.stop_timeout_s) + TORCHRUN_GRACE_S
        variables["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(timeout)
    return variables | config.script.env


def _device_variables(config: RunConfig, plan: Plan) -> dict[str, str]:
    """Return the variables that decide which GPUs the ranks see."""
    from distrain.runners.system.devices import visible_devices  # no launcher process needs it

    if config.is_script and config.is_one_process and config.devices == "auto":
        return {}  # it sees what it would see without distrain
    if plan.devices[0].kind == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if not plan.scheduled:
        variables["CUDA_VISIBLE_DEVICES"] = visible_devices(plan.devices)
    return variables


def clean_environment(launcher: str = "") -> dict[str, str]:
    """Return the environment of this process without variables that would mislead the ranks."""
    misleading = INHERITED.difference(GIVEN if launcher == "env" else ())
    return {name: value for name, value in os.environ.items() if name not in misleading}
