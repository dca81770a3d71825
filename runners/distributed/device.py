"""The device that a rank computes on."""

from __future__ import annotations

import torch

from distrain.runners.config.plan import Plan
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import device_of_rank


def rank_device(plan: Plan, local_rank: int) -> torch.device:
    """Return the device of a rank and make it torch's current CUDA device.

    Raises ConfigError where the plan has GPUs and torch cannot use them.
    """
    if plan.devices[0].kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("torch cannot use the GPUs; run `distrain doctor` to see why")
    if plan.scheduled:
        # Slurm may show a task all GPUs of its node, or its own only.
        index = local_rank % torch.cuda.device_count()
    else:
        # Several ranks may share a GPU, so the visible ones are counted by UUID.
        uuids = list(dict.fromkeys(device.uuid for device in plan.devices))
        index = uuids.index(device_of_rank(plan.devices, local_rank).uuid)
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device
