"""Measurement of DDP's gradient buckets, by a comm hook around the one that communicates."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from distrain.runners.distributed.timing import AllReduceSpan, Clock

CommHook = Callable[[Any, dist.GradBucket], Future[torch.Tensor]]


class BucketTimer:
    """Registers `hook` at DDP, and stamps when each bucket is ready and when it is reduced.

    The second stamp is taken where the result arrives first: on a thread of gloo, or on the
    stream on which NCCL hands over its result. All stamps exist once backward has returned.
    """

    def __init__(
        self, wrapped: DistributedDataParallel, clock: Clock, hook: CommHook, state: Any
    ) -> None:
        self._spans: list[Any] = []

        @wraps(hook)  # DDP checks the name and the annotations of a hook
        def timed_hook(state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
            span = [clock.stamp(), None]
            buffer = bucket.buffer()
            self._spans.append(span)

            def finish(future: Future[Any]) -> Any:
                reduced = future.value()  # raises the error of a reduction that failed
                span[1] = clock.stamp()
                return buffer if isinstance(reduced, list) else reduced

            return hook(state, bucket).then(finish)

        wrapped.register_comm_hook(state, timed_hook)

    def take(self) -> list[AllReduceSpan]:
        """Return and forget the spans of the last backward, in the order of their begin."""
        spans = self._spans
        self._spans = []
        return spans


@wraps(allreduce_hook)
def sum_hook(state: Any, bucket: dist.GradBucket) -> Any:
    """Sum a bucket over all ranks in place, without the division of torch's default hook.

    The division would be one more pass over all gradients. Calls the group itself, because
    `dist.all_reduce` adds half of the time that the call takes.
    """
    group = dist.group.WORLD
    assert group is not None
    buffer = bucket.buffer()
    real = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    return group.allreduce([real]).get_future()
