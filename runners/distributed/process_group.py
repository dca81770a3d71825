"""The ranks of a run as one of them sees the group, and how a rank joins it."""

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

from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.system.rank_identity import HAS_STORE
from distrain.runners.system.scheduler_env import FILE


@dataclass(frozen=True)
class World:
    """The `size` ranks of a run, seen from one of them. All ranks must call each collective.

    `patience` is how long this rank waits at the end of `waiting_for_leader`. Under the strategy
    `dp` the single rank uses all visible GPUs.
    """

    rank: int
    local_rank: int
    size: int
    device: torch.device
    patience: timedelta = timedelta(minutes=5)

    @property
    def is_leader(self) -> bool:
        """Return whether this is rank 0, which reports for all and writes the checkpoints."""
        return self.rank == 0

    def all_reduce_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by its sum over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def is_equal_on_ranks(self, number: int) -> bool:
        """Return whether all ranks have the same number, below 2**32.

        If they have not, at least one rank finds out: each compares its number with the mean.
        """
        total = torch.tensor(number, dtype=torch.float64, device=self.device)
        self.all_reduce_(total)
        return float(total) == number * self.size

    def broadcast_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by that of rank 0, in place."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)

    def gather_objects(self, item: Any) -> list[Any]:
        """Return the `item` of every rank, by rank, on rank 0; an empty list elsewhere."""
        if self.size == 1:
            return [item]
        items: list[Any] | None = [None] * self.size if self.is_leader else None
        dist.gather_object(item, items, dst=0)
        return items or []

    def broadcast_object(self, item: Any) -> Any:
        """Return the `item` of rank 0; what the other ranks pass is ignored."""
        if self.size == 1:
            return item
        items = [item]
        dist.broadcast_object_list(items, src=0)
        return items[0]

    @contextlib.contextmanager
    def waiting_for_leader(self) -> Iterator[None]:
        """Let all ranks wait at the end of the block until rank 0 has finished its own.

        The wait then does not count as part of a step. A slow disk may keep rank 0 for longer
        than a collective may take: the others have more patience than rank 0.
        """
        group = self._leader_group if self.size > 1 else None
        yield
        if group is not None:
            dist.barrier(group)

    @cached_property
    def _leader_group(self) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=self.patience)
        return group


@contextlib.contextmanager
def join(config: RunConfig, plan: Plan, device: torch.device) -> Iterator[World]:
    """Join torch's process group of this run, and leave it at the end of the block.

    A run of one process without a backend has no process group. Rank, size and address come
    from the environment. Raises ConfigError where torch is built without the backend.
    """
    rank = int(os.environ.get("RANK", "0"))
    limits = config.dist
    timeout = timedelta(seconds=limits.timeout_s)
    patience = timedelta(seconds=limits.leader_timeout_s) if rank else timeout
    world = World(rank, int(os.environ.get("LOCAL_RANK", "0")), plan.world_size, device, patience)
    if plan.backend == "none":
        yield world
        return
    _require_backend(plan.backend)
    dist.init_process_group(
        plan.backend,
        timeout=timeout,
        device_id=device if plan.backend == "nccl" else None,
        store=_make_store(config.dist.init_method or "", plan.world_size, timeout),
        rank=rank,
        world_size=plan.world_size,
    )
    yield world
    # Not after an error: destroying a broken group may wait for ranks that will never answer.
    dist.destroy_process_group()


def _make_store(method: str, size: int, timeout: timedelta) -> dist.Store:
    """Return the store of `dist.init_method`, or else the one that the launcher names."""
    if method.startswith(FILE):
        store = dist.FileStore(method.removeprefix(FILE), size)
        store.set_timeout(timeout)
        return store
    if "MASTER_ADDR" not in os.environ:  # the launcher `inline` sets none
        return dist.HashStore()
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    is_master = os.environ.get(HAS_STORE) == "True"
    return dist.TCPStore(
        host, port, size, is_master=is_master, timeout=timeout, multi_tenant=is_master
    )


def _require_backend(backend: str) -> None:
    checks = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
        "ucc": dist.is_ucc_available,
    }
    if not checks[backend]():
        available = [name for name, is_available in checks.items() if is_available()]
        problem = f"this torch is built without {backend}; choose {' or '.join(available)}"
        raise ConfigError([("dist.backend", problem)])
