"""The strategy `horovod`: Horovod's DistributedOptimizer reduces each gradient when it is ready.

Only this module of a rank imports Horovod; it therefore also defines Horovod's process group.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn
from torch.optim import Optimizer

from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.distributed.timing import Clock
from distrain.runners.errors import ConfigError
from distrain.runners.strategies.base import Strategy, broadcast_from_leader
from distrain.runners.strategies.kept_optimizer import kept_when_rebuilt
from distrain.runners.strategies.last_gradient import LastGradient
from distrain.runners.strategies.use_marks import UseMarks

BEAT_S = 0.25  # interval at which rank 0 tells the waiting ranks that it is still busy


class Horovod(Strategy):
    """Averages over ranks; losses are weighted so that the average is the mean over samples."""

    reduces_unfrozen = False

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        _require_reducible(model)
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        self._last_gradient = LastGradient(model, clock)
        return model

    def optimizer(self, optimizer: Optimizer, model: nn.Module, resumed: bool) -> Optimizer:
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        wrapped: Optimizer = hvd.DistributedOptimizer(
            kept_when_rebuilt(optimizer),
            named_parameters=model.named_parameters(),
            compression=getattr(hvd.Compression, self.config.horovod.compression),
            backward_passes_per_step=self.config.train.accumulate,
            op=hvd.Average,
        )
        # Without any state, broadcast_optimizer_state would make a step to create one.
        if resumed and wrapped.state:
            hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        self._optimizer: Any = wrapped
        return wrapped

    @contextmanager
    def without_sync(self, wrapped: nn.Module) -> Iterator[None]:
        yield
        self._last_gradient.take()  # only the one of the last micro-batch counts

    def weight(self, samples: float, total: float) -> float:
        return samples / total * self.world.size

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        last = self._last_gradient.take() or clock.stamp()
        marks = UseMarks(self._parameters)
        # Horovod sends this small tensor together with the gradients.
        handle = hvd.allreduce_async_(marks.tensor().float(), op=hvd.Sum, name="distrain.used")
        self._optimizer.synchronize()
        marks.remove_unused(hvd.synchronize(handle))
        clock.add_all_reduces([(last, clock.stamp())])
        clock.mark("backward", last)
        clock.mark("comm")

    def stepping(self) -> AbstractContextManager[Any]:
        skipped: AbstractContextManager[Any] = self._optimizer.skip_synchronize()
        return skipped


def _require_reducible(model: nn.Module) -> None:
    """Raise ConfigError where Horovod cannot reduce a parameter."""
    for name, parameter in model.named_parameters():
        dtype = parameter.dtype
        if not parameter.requires_grad:
            continue
        if not parameter.is_contiguous():
            problem = f"the parameter {name} is not contiguous in memory, which Horovod requires"
            raise ConfigError([("model.name", problem)])
        if dtype not in (torch.float16, torch.float32, torch.float64):
            problem = f"Horovod cannot reduce the parameter {name} of {dtype}; keep it in float32"
            if dtype is torch.bfloat16:
                problem += ' (precision = "bf16" still computes in bfloat16)'
            raise ConfigError([("model.name", problem)])


class HorovodWorld(World):
    """The ranks of a run in Horovod's group; there is no process group of torch."""

    def all_reduce_(self, tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, op=hvd.Sum, name="sum")

    def broadcast_(self, tensor: torch.Tensor) -> None:
        # As bytes, because Horovod cannot broadcast bool or bfloat16.
        if tensor.numel():
            hvd.broadcast_(tensor.view(-1).view(torch.uint8), root_rank=0, name="broadcast")

    def gather_objects(self, item: Any) -> list[Any]:
        items: list[Any] = hvd.allgather_object(item, name="gathered")
        return items if self.is_leader else []

    def broadcast_object(self, item: Any) -> Any:
        return hvd.broadcast_object(item, root_rank=0, name="from_lead")

    @contextmanager
    def waiting_for_leader(self) -> Iterator[None]:
        finished = threading.Event()
        beat = threading.Thread(target=self._report_busy, args=(finished,), daemon=True)
        if self.is_leader:
            beat.start()
        try:
            yield
        finally:
            finished.set()
            if self.is_leader:
                beat.join()
        while self._broadcast_busy(False):
            pass

    def _report_busy(self, finished: threading.Event) -> None:
        while not finished.wait(BEAT_S):
            self._broadcast_busy(True)

    def _broadcast_busy(self, busy: bool) -> bool:
        """Broadcast rank 0's `busy`; the other ranks wait for it, at most `BEAT_S`."""
        answer: torch.Tensor = hvd.broadcast(
            torch.tensor([busy], dtype=torch.uint8), root_rank=0, name="led"
        )
        return bool(answer)


@contextmanager
def join(config: RunConfig, device: torch.device) -> Iterator[World]:
    """Join Horovod's group, whose address is in the environment; leave it after the block."""
    timeout_s = config.dist.timeout_s
    print(f"waiting for all ranks; Horovod aborts if one does not arrive within {timeout_s:g} s")
    hvd.init()
    yield HorovodWorld(hvd.rank(), hvd.local_rank(), hvd.size(), device)
    hvd.shutdown()


STRATEGY = Horovod
