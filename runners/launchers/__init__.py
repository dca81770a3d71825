"""How rank processes come to be. Each launcher is a command line; torch is not imported here.

`command` gives the argument vector that the supervisor starts: a launcher module, whose `main()`
starts the ranks, reports how each ended and returns when all have, or for `inline` the one rank
itself. Ranks find everything else in the environment.
"""

from __future__ import annotations

import os
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from runners.connecting import TOKEN, TOKEN_FILE, Endpoint, given_token
from runners.launchers.place import PLACES
from runners.network import sockets
from runners.rendezvous import GIVEN

if TYPE_CHECKING:
    from runners.config import RunConfig
    from runners.plan import Plan

MODULES = {
    "inline": "runners.worker",
    "spawn": "runners.launchers.spawn",
    "torchrun": "runners.launchers.torchrun",
    "horovodrun": "runners.launchers.horovodrun",
    "slurm": "runners.launchers.slurm",
    "env": "runners.launchers.env",
}

# What a launcher that we were started by has left behind would mislead our ranks.
FOREIGN = {
    *PLACES,
    *chain(*PLACES.values()),
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "GROUP_RANK",
    "DISTRAIN_NODE",
    "DISTRAIN_TOKEN",
    TOKEN_FILE,
}

# Variables that change what a run computes or how fast; recorded with every run.
MATTERS = (
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "OMP_",
    "MKL_",
    "TORCH",
    "PYTORCH_",
    "UCC_",
    "UCX_",
    "HOROVOD_",
)


def command(config: RunConfig, plan: Plan) -> list[str]:
    """The argument vector of the launcher process."""
    module, arguments = MODULES[config.launcher], [str(plan.world_size)]
    if config.launcher == "torchrun":
        arguments.append(str(config.dist.max_restarts))
    if config.launcher == "env":
        arguments = ["known" if given_token() else "told"]
    if config.dist.nodes > 1:
        module, arguments = "runners.launchers.node", ["first"]
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(config: RunConfig, plan: Plan, folder: Path, endpoint: Endpoint) -> dict[str, str]:
    """What launcher and ranks find in their environment; equal for every launcher."""
    from runners.devices import visible_devices  # no launcher process needs it

    ours = {
        "DISTRAIN_RUN": str(folder),
        "DISTRAIN_SOCKET": endpoint.remote or endpoint.local,
        "DISTRAIN_SUPERVISOR": str(os.getpid()),
        "OMP_NUM_THREADS": str(plan.threads),
        # A folder called `models` where the user stands must not hide ours.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if endpoint.remote:
        ours[TOKEN_FILE] = str(folder / TOKEN)
    if not (plan.spread or plan.scheduled):  # of several each finds out for itself
        ours |= sockets(config.dist.interface).variables
    if plan.devices[0].kind == "cuda":
        ours["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if not plan.scheduled:
            ours["CUDA_VISIBLE_DEVICES"] = visible_devices(plan.devices)
        # The last collectives of each rank, to be seen when one hangs.
        ours["TORCH_FR_BUFFER_SIZE"] = os.environ.get("TORCH_FR_BUFFER_SIZE", "2000")
    else:
        ours["CUDA_VISIBLE_DEVICES"] = ""
    if config.train.deterministic:
        ours["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return native(config.launcher) | ours


def native(launcher: str = "") -> dict[str, str]:
    """Our environment without what would mislead the ranks of a launcher."""
    foreign = FOREIGN.difference(GIVEN if launcher == "env" else ())
    return {name: value for name, value in os.environ.items() if name not in foreign}
