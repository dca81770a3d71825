"""When DDP's buckets of gradients leave and come back: a comm hook around what travels."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from runners.clock import Clock, Span

Hook = Callable[[Any, dist.GradBucket], Future[torch.Tensor]]


class Wire:
    """Stamps each bucket as it is ready here and as it is reduced.

    The second stamp is taken where the result is there first: on a thread of gloo, or on the
    stream that NCCL's result is handed over on. All are taken once backward has returned.
    """

    def __init__(
        self, wrapped: DistributedDataParallel, clock: Clock, hook: Hook, state: Any
    ) -> None:
        self._spans: list[Any] = []

        @wraps(hook)  # DDP looks at a hook's name and annotations
        def timed(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
            span, buffer = [clock.stamp(), None], bucket.buffer()
            self._spans.append(span)

            def back(future: Future[Any]) -> Any:
                reduced = future.value()  # raises what has gone wrong on the way
                span[1] = clock.stamp()
                return buffer if isinstance(reduced, list) else reduced

            return hook(state, bucket).then(back)

        wrapped.register_comm_hook(state, timed)

    def take(self) -> list[Span]:
        """The buckets of the step that has just been reduced, in the order of their leaving."""
        spans, self._spans = self._spans, []
        return spans


@wraps(allreduce_hook)
def summed(state: Any, bucket: dist.GradBucket) -> Any:
    """The sum over ranks, in place and undivided: a division would be one more pass over all.

    Asks the group itself, for `dist.all_reduce` takes half as long again before it does so.
    """
    group, buffer = dist.group.WORLD, bucket.buffer()
    assert group is not None
    real = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    return group.allreduce([real]).get_future()
