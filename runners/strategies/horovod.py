"""`horovod`: its DistributedOptimizer all-reduces each gradient as soon as backward has it.

The only worker-side module that imports Horovod, and so the one that knows it as a world, too.
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

from runners.clock import Clock
from runners.errors import ConfigError
from runners.strategies import Strategy, broadcast_from_leader
from runners.strategies.gradients import LastGradient
from runners.world import World

BEAT_S = 0.25  # how often rank 0 tells those who wait for it that it still works


class Horovod(Strategy):
    """Average over ranks of losses that are weighted so that it is the mean over samples."""

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        _require_reducible(model)
        broadcast_from_leader(self.world, [*model.parameters(), *model.buffers()])
        self._last = LastGradient(model, clock)
        return model

    def optimizer(self, optimizer: Optimizer, model: nn.Module, resumed: bool) -> Optimizer:
        wrapped: Optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=[(name, p) for name, p in model.named_parameters() if p.requires_grad],
            compression=getattr(hvd.Compression, self.config.horovod.compression),
            backward_passes_per_step=self.config.train.accumulate,
            op=hvd.Average,
        )
        _take_over(wrapped, optimizer)
        if resumed and wrapped.state:  # without any it would take a step of its own
            hvd.broadcast_optimizer_state(wrapped, root_rank=0)
        self._optimizer: Any = wrapped
        return wrapped

    @contextmanager
    def without_sync(self, wrapped: nn.Module) -> Iterator[None]:
        yield
        self._last.take()  # the moment that counts is the last micro-batch's

    def weight(self, samples: int, total: int) -> float:
        return samples / total * self.world.size

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        last = self._last.take() or clock.stamp()
        self._optimizer.synchronize()
        clock.communicated([(last, clock.stamp())])
        clock.mark("backward", last)
        clock.mark("comm")

    def stepping(self) -> AbstractContextManager[Any]:
        skipped: AbstractContextManager[Any] = self._optimizer.skip_synchronize()
        return skipped


def _require_reducible(model: nn.Module) -> None:
    """Raises ConfigError for parameters of a type that Horovod cannot reduce."""
    for name, parameter in model.named_parameters():
        kind = parameter.dtype
        if not parameter.requires_grad:
            continue
        if not parameter.is_contiguous():
            text = f"{name} is not contiguous in memory, and Horovod reduces nothing else"
            raise ConfigError([("model.name", text)])
        if kind not in (torch.float16, torch.float32, torch.float64):
            text = f"{name} is of {kind}, which Horovod cannot reduce; keep parameters in float32"
            if kind is torch.bfloat16:
                text += ' (precision = "bf16" computes in bfloat16 all the same)'
            raise ConfigError([("model.name", text)])


def _take_over(wrapped: Optimizer, before: Optimizer) -> None:
    """What Horovod's new instance of the optimizer's class does not take from it."""
    wrapped.state.update(before.state)
    if getattr(before, "_step_supports_amp_scaling", False):
        wrapped._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    # Horovod's step calls that of the class below, and torch lets both run the optimizer's hooks.
    kind = type(wrapped)
    kind.step = kind.step.__wrapped__  # type: ignore[attr-defined,method-assign]


class HorovodWorld(World):
    """Ranks that meet through Horovod; no process group of torch is there."""

    def sum_(self, tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, op=hvd.Sum, name="sum")

    def broadcast_(self, tensor: torch.Tensor) -> None:
        # As bytes, for it has no function for bool or bfloat16.
        if tensor.numel():
            hvd.broadcast_(tensor.view(-1).view(torch.uint8), root_rank=0, name="broadcast")

    def gathered(self, own: Any) -> list[Any]:
        everyone: list[Any] = hvd.allgather_object(own, name="gathered")
        return everyone if self.leads else []

    def from_lead(self, own: Any) -> Any:
        return hvd.broadcast_object(own, root_rank=0, name="from_lead")

    @contextmanager
    def led(self) -> Iterator[None]:
        done = threading.Event()
        beat = threading.Thread(target=self._say_that_it_works, args=(done,), daemon=True)
        if self.leads:
            beat.start()
        try:
            yield
        finally:
            done.set()
            if self.leads:
                beat.join()
        while self._is_busy(False):
            pass

    def _say_that_it_works(self, done: threading.Event) -> None:
        while not done.wait(BEAT_S):
            self._is_busy(True)

    def _is_busy(self, working: bool) -> bool:
        """Whether rank 0 works on; those who ask wait until it answers, `BEAT_S` at most."""
        answer: torch.Tensor = hvd.broadcast(
            torch.tensor([working], dtype=torch.uint8), root_rank=0, name="led"
        )
        return bool(answer)


@contextmanager
def joined(device: torch.device, timeout_s: float) -> Iterator[World]:
    """Be among the ranks that the environment tells of."""
    print(f"meeting the others; Horovod aborts where one does not come within {timeout_s:g} s")
    hvd.init()
    yield HorovodWorld(hvd.rank(), hvd.local_rank(), hvd.size(), device)
    hvd.shutdown()


STRATEGY = Horovod
