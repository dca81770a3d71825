"""`ddp`: DistributedDataParallel, which all-reduces buckets of gradients during backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from runners.clock import Clock
from runners.strategies import Strategy
from runners.strategies.gradients import LastGradient
from runners.strategies.wire import Hook, Wire, summed


class Ddp(Strategy):
    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        options, device = self.config.ddp, self.world.device
        self._last = LastGradient(model, clock)
        wrapped = TimedDdp(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=options.bucket_mb,
            static_graph=options.static_graph,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            find_unused_parameters=options.find_unused_parameters,
        )
        # What torch.compile traces cannot look at a clock.
        wrapped.clock = None if self.config.train.compile else clock
        self._wire = Wire(wrapped, clock, *self._hook())
        return wrapped

    def _hook(self) -> tuple[Hook, Any]:
        """What travels, and its state."""
        options = self.config.ddp
        self._power: powerSGD_hook.PowerSGDState | None = None
        if options.comm_hook == "none":
            return summed, None
        if options.comm_hook != "powerSGD":
            return getattr(default_hooks, f"{options.comm_hook}_hook"), None
        self._power = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=options.powersgd_rank,
            start_powerSGD_iter=options.powersgd_start,
            random_seed=self.config.train.seed,
        )
        return powerSGD_hook.powerSGD_hook, self._power

    @contextmanager
    def without_sync(self, wrapped: nn.Module) -> Iterator[None]:
        assert isinstance(wrapped, DistributedDataParallel)
        with wrapped.no_sync():
            yield
        self._last.take()  # the moment that counts is the last micro-batch's

    def weight(self, samples: int, total: int) -> float:
        """The hooks that make the wire narrower divide by the world size, and ours does not."""
        share = samples / total
        return share if self.config.ddp.comm_hook == "none" else share * self.world.size

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        """DDP has reduced already; what came after the last local gradient was waiting."""
        last = self._last.take()
        clock.communicated(self._wire.take(), last)
        clock.mark("backward", last)
        clock.mark("comm")

    def state(self) -> dict[str, Any]:
        """PowerSGD's error feedback and its random state, which differ from rank to rank."""
        if self._power is None:
            return {}
        kind, keys, *rest = cast(tuple[Any, ...], self._power.rng.get_state(legacy=True))
        tensors = {
            name: {index: tensor.cpu() for index, tensor in getattr(self._power, name).items()}
            for name in POWER_TENSORS
        }
        return {"iter": self._power.iter, "rng": [kind, keys.tolist(), *rest], **tensors}

    def load_state(self, state: dict[str, Any]) -> None:
        if self._power is None or not state:
            return
        self._wire.take()  # of the backward by which DDP has laid its buckets out
        self._power.iter = state["iter"]
        kind, keys, *rest = state["rng"]
        self._power.rng.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
        for name in POWER_TENSORS:
            moved = {index: tensor.to(self.world.device) for index, tensor in state[name].items()}
            setattr(self._power, name, moved)


class TimedDdp(DistributedDataParallel):
    """Counts as communication that ranks wait for rank 0's buffers at the begin of forward."""

    clock: Clock | None = None

    def _sync_buffers(self) -> None:
        if self.clock is not None:
            self.clock.mark("forward")
        super()._sync_buffers()  # type: ignore[no-untyped-call]
        if self.clock is not None:
            self.clock.mark("comm")


POWER_TENSORS = ("error_dict", "p_memory_dict", "q_memory_dict")


STRATEGY = Ddp
