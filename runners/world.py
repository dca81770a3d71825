"""A rank's place among the others: its device, how they meet, what the group's errors mean."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from runners.config import RunConfig
from runners.devices import of_rank
from runners.errors import ConfigError
from runners.launchers.place import HAS_STORE
from runners.plan import Plan
from runners.rendezvous import FILE

PATIENCE = timedelta(days=1)


@dataclass(frozen=True)
class World:
    """`size` ranks; under `dp` one rank drives every visible device."""

    rank: int
    local_rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum_(self, tensor: torch.Tensor) -> None:
        """Over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def broadcast_(self, tensor: torch.Tensor) -> None:
        """Rank 0's, in place."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)

    def gathered(self, own: Any) -> list[Any]:
        """Every rank's `own` on rank 0, an empty list elsewhere."""
        if self.size == 1:
            return [own]
        everyone: list[Any] | None = [None] * self.size if self.leads else None
        dist.gather_object(own, everyone, dst=0)
        return everyone or []

    def from_lead(self, own: Any) -> Any:
        """Rank 0's `own`, whatever the others have."""
        if self.size == 1:
            return own
        everyone = [own]
        dist.broadcast_object_list(everyone, src=0)
        return everyone[0]

    @contextlib.contextmanager
    def led(self) -> Iterator[None]:
        """Around work of rank 0, for which all wait at the end, so that it is in nobody's step.

        A slow disk may keep it longer than a collective may take: `dist.timeout_s` does not
        bound this wait. All ranks must enter.
        """
        group = self._patient_group if self.size > 1 else None
        yield
        if group is not None:
            dist.barrier(group)

    @cached_property
    def _patient_group(self) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=PATIENCE)
        return group


@contextlib.contextmanager
def joined(config: RunConfig, plan: Plan) -> Iterator[World]:
    """Choose this rank's device and be in the process group, where the strategy has one.

    Raises ConfigError where the backend is not built into this torch or CUDA is not usable.
    """
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = _device(plan, local)
    torch.set_num_threads(plan.threads)
    if plan.backend == "none":
        yield World(rank, local, plan.world_size, device)
        return
    if plan.backend == "horovod":
        from runners.strategies import horovod

        with horovod.joined(device, config.dist.timeout_s) as world:
            yield world
        return
    _require(plan.backend)
    patience = timedelta(seconds=config.dist.timeout_s)
    dist.init_process_group(
        plan.backend,
        timeout=patience,
        device_id=device if plan.backend == "nccl" else None,
        store=_store(config.dist.init_method or "", plan.world_size, patience),
        rank=rank,
        world_size=plan.world_size,
    )
    yield World(rank, local, plan.world_size, device)
    # Not after an error: destroying a broken group may wait for ranks that will never answer.
    dist.destroy_process_group()


def _store(method: str, size: int, patience: timedelta) -> dist.Store:
    """Where the ranks meet, as their launcher has told, or in a file that the config names."""
    if method.startswith(FILE):
        store = dist.FileStore(method.removeprefix(FILE), size)
        store.set_timeout(patience)
        return store
    if "MASTER_ADDR" not in os.environ:  # under `inline` there is none
        return dist.HashStore()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    here = os.environ.get(HAS_STORE) == "True"
    return dist.TCPStore(host, port, size, is_master=here, timeout=patience, multi_tenant=here)


def _device(plan: Plan, local_rank: int) -> torch.device:
    if plan.devices[0].kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("this torch cannot use the GPUs: `distrain doctor` says why")
    # Several ranks may share a GPU, so the visible ones are counted by UUID.
    uuids = list(dict.fromkeys(device.uuid for device in plan.devices))
    index = uuids.index(of_rank(plan.devices, local_rank).uuid)
    if plan.scheduled:  # a task may see all GPUs of its node, or only its own
        index = local_rank % torch.cuda.device_count()
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def _require(backend: str) -> None:
    usable = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
        "ucc": dist.is_ucc_available,
    }
    if not usable[backend]():
        there = [name for name, is_there in usable.items() if is_there()]
        raise ConfigError(
            [("dist.backend", f"this torch has no {backend}; it has {', '.join(there)}")]
        )


_BROKEN_LINK = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "socket timeout",
    "watchdog caught collective",
    "remote process exited",
    "failed to recv",
    "socket closed",
)


def looks_collateral(error: BaseException, message: str) -> bool:
    """Whether the error is what a rank sees when another one died or is absent."""
    if isinstance(error, dist.DistNetworkError | dist.DistBackendError | dist.DistStoreError):
        return True
    text = message.lower()
    if type(error).__name__ == "HorovodInternalError":  # imported only where it is in use
        return True
    return isinstance(error, RuntimeError) and any(sign in text for sign in _BROKEN_LINK)
