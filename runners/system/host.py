"""What plans depend on of the host that they are made on, gathered once."""

from __future__ import annotations

import math
import os
from typing import Self

import msgspec

from distrain.runners.system.devices import Gpus, look_up_gpus
from distrain.runners.system.limits import Memory, cpu_quota, memory_limit
from distrain.runners.system.network import Interfaces, list_interfaces


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """This host at one moment.

    `cores` are the CPU cores that this process may use. `gpus` and `interfaces` take time to look
    up: they are None if nobody asked for them.
    """

    cores: int
    environment: dict[str, str]
    gpus: Gpus | None = None
    interfaces: Interfaces | None = None

    @classmethod
    def here(cls, *, gpus: bool = False, interfaces: bool = False) -> Self:
        """Gather the facts of this host; `gpus` loads NVML and `interfaces` psutil."""
        return cls(
            cores=count_cores(),
            environment=dict(os.environ),
            gpus=look_up_gpus() if gpus else None,
            interfaces=list_interfaces() if interfaces else None,
        )


def count_cores() -> int:
    """Return the number of CPU cores that this process may use.

    A container may have the time of fewer cores than it runs on; a part of a core counts as one.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return math.ceil(min(len(os.sched_getaffinity(0)), cpu_quota()))


def memory() -> Memory:
    """Return the memory of this host, or of the container or job where that has a limit."""
    import psutil  # as late as the interfaces

    whole = psutil.virtual_memory()
    machine = Memory(whole.total, whole.total - whole.available)
    group = memory_limit()
    return machine if group is None or group.total >= machine.total else group
