"""The strategy `ddp`: DistributedDataParallel, which all-reduces buckets during backward."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from distrain.runners import formatting
from distrain.runners.distributed.numpy_state import restored_numpy_state
from distrain.runners.distributed.timing import Clock
from distrain.runners.errors import ConfigError
from distrain.runners.strategies.base import Strategy
from distrain.runners.strategies.bucket_timing import BucketTimer, CommHook, sum_hook
from distrain.runners.strategies.last_gradient import LastGradient

# What DDP raises at the forward after a backward that did not reach some parameters.
UNUSED = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")
# What torch raises for a tensor of another size.
MISFIT = re.compile(r"The size of tensor a|is invalid for input of size|out of bounds")
MOST_NAMES = 5  # of parameters, in a message
# Attributes of PowerSGDState that hold tensors by the index of a bucket.
POWERSGD_TENSORS = ("error_dict", "p_memory_dict", "q_memory_dict")


class Ddp(Strategy):
    """DistributedDataParallel with the options of `[ddp]`."""

    reduces_unfrozen = False

    def wrap(self, model: nn.Module, clock: Clock) -> nn.Module:
        options = self.config.ddp
        device = self.world.device
        self._model = model
        self._restored = False  # whether the state of PowerSGD is that of a checkpoint
        self._last_gradient = LastGradient(model, clock)
        wrapped = TimedDdp(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=options.bucket_mb,
            static_graph=options.static_graph,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            find_unused_parameters=options.find_unused_parameters,
        )
        # Code that torch.compile traces cannot call a clock.
        wrapped.clock = None if self.config.train.compile else clock
        self._bucket_timer = BucketTimer(wrapped, clock, *self._comm_hook())
        return wrapped

    def _comm_hook(self) -> tuple[CommHook, Any]:
        """Return the hook that `ddp.comm_hook` names, and its state."""
        options = self.config.ddp
        self._powersgd: powerSGD_hook.PowerSGDState | None = None
        if options.comm_hook == "none":
            return sum_hook, None
        if options.comm_hook != "powerSGD":
            return getattr(default_hooks, f"{options.comm_hook}_hook"), None
        self._powersgd = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=options.powersgd_rank,
            start_powerSGD_iter=options.powersgd_start,
            random_seed=self.config.train.seed,
        )
        # With gloo, threads begin the later reductions of each bucket, and their order differs
        # between ranks.
        is_ordered = dist.get_backend() != "gloo"
        hook = powerSGD_hook.powerSGD_hook if is_ordered else _one_bucket_at_a_time
        return hook, self._powersgd

    @contextmanager
    def without_sync(self, wrapped: nn.Module) -> Iterator[None]:
        assert isinstance(wrapped, DistributedDataParallel)
        with wrapped.no_sync():
            yield
        self._last_gradient.take()  # only the one of the last micro-batch counts

    def weight(self, samples: float, total: float) -> float:
        # torch's compressing hooks divide by the world size; `sum_hook` does not.
        share = samples / total
        return share if self.config.ddp.comm_hook == "none" else share * self.world.size

    def reduce(self, model: nn.Module, clock: Clock) -> None:
        # DDP has reduced already. The time after the last local gradient was a wait.
        last = self._last_gradient.take()
        clock.add_all_reduces(self._bucket_timer.take(), last)
        if self._powersgd is not None and self.config.precision in ("fp16", "auto"):
            _forget_overflows(self._powersgd)
        clock.mark("backward", last)
        clock.mark("comm")

    def explain(self, error: BaseException) -> Exception | None:
        """Explain a loss that does not use all parameters, or a state for other buckets."""
        if self._restored and MISFIT.search(str(error)) and _is_of_powersgd(error):
            problem = (
                "its state of PowerSGD does not fit: continue with the ddp.bucket_mb and "
                "ddp.powersgd_rank of its run"
            )
            return ConfigError([("checkpoint.load", problem)])
        return self._explain_unused(error)

    def _explain_unused(self, error: BaseException) -> Exception | None:
        """Return the parameters that the loss does not use, which DDP names by their indices."""
        found = UNUSED.search(str(error)) if isinstance(error, RuntimeError) else None
        if found is None:
            return None
        trained = [name for name, each in self._model.named_parameters() if each.requires_grad]
        names = [trained[int(index)] for index in found[1].split()]
        shown = ", ".join([*names[:MOST_NAMES], "…"] if len(names) > MOST_NAMES else names)
        problem = (
            f"the loss does not use {formatting.plural(len(names), 'parameter')} ({shown}): "
            f"{'freeze' if self._powersgd else 'set this to true, or freeze'} what is never used"
        )
        return ConfigError([("ddp.find_unused_parameters", problem)])

    def state(self) -> dict[str, Any]:
        """Return the error feedback and the random state of PowerSGD, which differ by rank."""
        if self._powersgd is None:
            return {}
        kind, keys, *rest = cast(tuple[Any, ...], self._powersgd.rng.get_state(legacy=True))
        tensors = {
            name: {index: tensor.cpu() for index, tensor in getattr(self._powersgd, name).items()}
            for name in POWERSGD_TENSORS
        }
        return {"iter": self._powersgd.iter, "rng": [kind, keys.tolist(), *rest], **tensors}

    def load_state(self, state: dict[str, Any]) -> None:
        if self._powersgd is None or not state:
            return
        self._bucket_timer.take()  # of the backward by which DDP has arranged its buckets
        self._powersgd.iter = state["iter"]
        self._powersgd.rng.set_state(restored_numpy_state(state["rng"]))
        self._restored = True
        for name in POWERSGD_TENSORS:
            moved = {index: tensor.to(self.world.device) for index, tensor in state[name].items()}
            setattr(self._powersgd, name, moved)

    def rescale(self, factor: float) -> None:
        if self._powersgd is not None:
            for error in self._powersgd.error_dict.values():
                error.mul_(factor)


@wraps(powerSGD_hook.powerSGD_hook)  # DDP checks the annotations of a hook
def _one_bucket_at_a_time(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Reduce one bucket after another, so that all ranks do it in the same order."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


def _forget_overflows(powersgd: powerSGD_hook.PowerSGDState) -> None:
    """Remove what is not finite from the memory of PowerSGD, after a backward in fp16.

    It would get into the gradients of all later steps, which would then be skipped too. PowerSGD
    has waited for the device already.
    """
    for error in powersgd.error_dict.values():
        if not error.isfinite().all():
            error.zero_()
    for index, matrices in powersgd.q_memory_dict.items():
        if not matrices.isfinite().all():  # on all ranks, as they are equal
            powersgd.p_memory_dict.pop(index, None)  # both are drawn again


def _is_of_powersgd(error: BaseException) -> bool:
    """Return whether an error was raised in the hook of PowerSGD."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(each.f_code is powerSGD_hook.powerSGD_hook.__code__ for each, _ in frames)


class TimedDdp(DistributedDataParallel):
    """Counts the wait for rank 0's buffers, at the begin of forward, as communication."""

    clock: Clock | None = None

    def _sync_buffers(self) -> None:
        if self.clock is not None:
            self.clock.mark("forward")
        super()._sync_buffers()  # type: ignore[no-untyped-call]
        if self.clock is not None:
            self.clock.mark("comm")


STRATEGY = Ddp
