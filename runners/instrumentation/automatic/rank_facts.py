"""What a rank notes of its program that shows common mistakes, once all ranks are compared.

It is noted during the first steps and once per window, and sent when it has changed.
"""

from __future__ import annotations

import sys
import time
import zlib
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d, rpc

from distrain.runners.instrumentation.automatic import hooked, optimizers
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import RankFacts

FIRST_STEPS = 10  # after which the first facts are sent
LEAST_STEPS = 3  # of a program that ends before
# Schemes that average parameters now and then, such as local SGD, do so within as many steps.
LONGEST_SILENCE = 1_000  # steps
COMPARED_BATCHES = 3
COMPARED_VALUES = 1_024  # of a batch
MOST_PATHS = 20
# They exchange gradients without a process group of torch.
OTHER_LIBRARIES = ("horovod", "mpi4py", "deepspeed", "torch_xla", "hivemind", "ray")
# What its stages send to each other is not counted by every backend.
PIPELINES = "torch.distributed.pipelining"

collector: RankFactsCollector


def attach(session: RankSession) -> None:
    """Let a session report the facts of its rank."""
    global collector
    collector = RankFactsCollector(session)
    session.automatic.facts = collector.look
    if session.world_size > 1:
        session.automatic.add_batch = collector.add_batch


class RankFactsCollector:
    """Collects the facts of one rank."""

    def __init__(self, session: RankSession) -> None:
        self._session = session
        self._has_group: bool | None = None
        self._uses_group: bool | None = None
        self._group_size: int | None = None
        self._first_look: tuple[int, int] | None = None  # steps and collectives before it
        self._last_steps = 0  # at the last look at the process group
        self._source: object = None
        self._batches: list[int] = []
        self._saved: list[str] = []
        self._sent: tuple[Any, ...] = (None, None, [], [], False, None)

    def look(self, steps: int, at_end: bool = False) -> RankFacts | None:
        """Return the facts after so many steps, if there are enough and they have changed."""
        if not at_end and hooked.thread != hooked.NO_THREAD:
            self._look_at_size()
            if self._session.world_size > 1:
                self._look_at_group(steps)
        if at_end:
            self._decide(steps, LEAST_STEPS)
        elif steps >= FIRST_STEPS:
            self._decide(steps, FIRST_STEPS, LONGEST_SILENCE)
        else:
            return None
        is_idle = at_end and not steps and optimizers.is_idle()
        batches = self._batches if steps and len(self._batches) == COMPARED_BATCHES else []
        now = (
            self._has_group,
            self._uses_group,
            batches[:],
            self._saved[:],
            is_idle,
            self._group_size,
        )
        if now == self._sent:
            return None
        self._sent = now
        return RankFacts(
            time=time.time(),
            rank=self._session.rank,
            step=steps,
            has_process_group=now[0],
            uses_process_group=now[1],
            batches=now[2],
            saved=now[3],
            has_idle_optimizer=now[4],
            group_size=now[5],
        )

    def _look_at_size(self) -> None:
        """Note the size of the process group, if it has more ranks than the run."""
        if self._group_size is None and distributed.is_initialized():
            size = distributed.get_world_size()
            self._group_size = size if size > self._session.world_size else None

    def _look_at_group(self, steps: int) -> None:
        """Note whether there is a process group, and whether anything was sent between steps."""
        if not self._has_group and _communicates():
            self._has_group = True
        if self._uses_group is not None or not distributed.is_initialized():
            return
        sent = _count_collectives()
        if sent is None:
            return
        if self._first_look is None:
            self._first_look = steps, sent
        elif sent != self._first_look[1]:
            self._uses_group = True
        self._last_steps = steps

    def _decide(self, steps: int, enough: int, silence: int = LEAST_STEPS) -> None:
        """Decide what is missing, where enough steps were observed."""
        if self._has_group is None and steps >= enough and self._session.world_size > 1:
            self._has_group = False
        if self._uses_group is not None or self._first_look is None:
            return
        if self._last_steps - self._first_look[0] >= silence and not _has_other_ways():
            self._uses_group = False

    def add_batch(self, source: object, batch: Any) -> None:
        """Note a batch of this source, if it is one of the first of the training data.

        Those of an earlier source that no step has followed were none.
        """
        has_stepped = self._session.steps > 0
        if not has_stepped and source is not self._source:
            self._batches.clear()
        self._source = source
        is_full = len(self._batches) == COMPARED_BATCHES
        tensor = None if is_full else _first_tensor(batch)
        if tensor is not None:
            self._batches.append(_checksum(tensor))
        elif has_stepped or not is_full:  # all are known, or cannot be compared
            self._session.automatic.add_batch = None

    def add_saved(self, path: str) -> None:
        """Note a file that the program has written."""
        if len(self._saved) < MOST_PATHS and path not in self._saved:
            self._saved.append(path)


def _communicates() -> bool:
    return distributed.is_initialized() or _has_other_ways()


def _has_other_ways() -> bool:
    """Return whether ranks may exchange gradients in a way that is not seen here."""
    has_agent = getattr(rpc, "_is_current_rpc_agent_set", lambda: False)()
    return has_agent or any(name in sys.modules for name in (PIPELINES, *OTHER_LIBRARIES))


def _count_collectives() -> int | None:
    """Return how often something was sent in any process group; None if a backend cannot tell."""
    try:
        return sum(
            group._get_backend(device)._get_sequence_number_for_group()  # type: ignore[attr-defined]
            for group in [*distributed_c10d._world.pg_map]
            for device in group._device_types
        )
    except (AttributeError, RuntimeError):
        return None


def _first_tensor(batch: Any) -> torch.Tensor | None:
    """Return the first tensor of a batch that is in memory of the CPU."""
    if isinstance(batch, torch.Tensor):
        is_plain = batch.device.type == "cpu" and batch.layout == torch.strided
        return batch if is_plain and not batch.is_nested and batch.numel() else None
    if isinstance(batch, dict):
        batch = [*batch.values()]
    if isinstance(batch, list | tuple):
        found = (_first_tensor(part) for part in batch)
        return next((tensor for tensor in found if tensor is not None), None)
    return None


def _checksum(tensor: torch.Tensor) -> int:
    """Return a checksum of values from all over a tensor.

    The stride between them is odd, so that they are not all of one column of an image.
    """
    values = tensor.detach().reshape(-1)
    stride = values.numel() // COMPARED_VALUES | 1
    return zlib.crc32(repr(values[::stride][:COMPARED_VALUES].tolist()).encode())
