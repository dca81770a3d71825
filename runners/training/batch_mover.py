"""The copy of batches to the device of a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from distrain.models.task import Task, overrides

DIRECT_BYTES = 1 << 16


class BatchMover:
    """Moves batches to the device. On CUDA it copies one batch ahead, on its own stream.

    Batches with less than `DIRECT_BYTES` to copy are copied just before they are used, without
    pinned memory: the device has the copy in its queue long before it gets there. Those of a data
    set on the device have nothing to copy. `pins`: whether the memory of the others is pinned here.
    """

    def __init__(
        self, task: Task, device: torch.device, channels_last: bool, *, pins: bool = False
    ) -> None:
        layout = torch.channels_last if channels_last else torch.preserve_format
        self.device = device
        self._options: dict[str, Any] = {
            "device": device,
            "non_blocking": True,
            "memory_format": layout,
        }
        self._move: Callable[[Any], Any] = partial(task.to, **self._options)
        is_plain = not overrides(task, "to") and task.finish is None and not channels_last
        self._has_nothing_to_do = is_plain and device.type == "cpu"
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pins = pins

    def move_now(self, task: Task, batch: Any) -> Any:
        """Return one batch on the device, finished by this copy of the task."""
        return batch if self._has_nothing_to_do else task.to(batch, **self._options)

    def move(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches on the device, finished by the task."""
        if self._has_nothing_to_do:
            return batches
        if self._stream is None:
            return map(self._move, batches)
        return self._move_to_gpu(batches, self._stream)

    def _move_to_gpu(self, batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
        for first in batches:
            rest = chain((first,), batches)
            if sum(each.nbytes for each in tensors_in(first) if each.is_cpu) < DIRECT_BYTES:
                yield from map(self._move, rest)
            else:
                yield from self._move_ahead(map(pin_memory, rest) if self._pins else rest, stream)

    def _move_ahead(self, batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
        """Copy the next batch while the device computes with the current one."""
        ahead = self._copy(next(batches, None), stream)
        while (batch := ahead) is not None:
            compute = torch.cuda.current_stream(self.device)
            compute.wait_stream(stream)
            for tensor in tensors_in(batch):
                # The allocator must not reuse the memory before the compute stream is done.
                if tensor.is_cuda:
                    tensor.record_stream(compute)
            ahead = self._copy(next(batches, None), stream)
            yield batch

    def _copy(self, batch: Any, stream: torch.cuda.Stream) -> Any:
        # The step of an earlier batch may still read memory that is used again here: `tensors_in`
        # does not find what `finish` returns in an object of the user's class.
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            return None if batch is None else self._move(batch)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors of a batch, in nested tuples, lists and dicts."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for item in batch.values():
            yield from tensors_in(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from tensors_in(item)
