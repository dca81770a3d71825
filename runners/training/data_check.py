"""Checks before the first step that a stream is the same for all that read it.

Each rank and loader process reads the whole stream. If they find different samples, some are used
twice and others never, and nothing else would show it.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrain.models.errors import TaskError
from distrain.runners.training.loading import open_stream
from distrain.runners.training.trainer import Training

FIRST_SAMPLES = 4


def check_stream(run: Training) -> None:
    """Read the first samples twice, and compare them with those of the other ranks.

    Raises TaskError, on at least one rank, where they differ.
    """
    subject = f"the training data, of class {type(run.task.train).__name__}, begin with other"
    checksum = _checksum(run)
    if _checksum(run) != checksum:
        problem = f"{subject} samples each time: __iter__ must start from the beginning, and draw "
        raise TaskError("task.name", f"{problem}from the global or from its own seeded generators")
    if not run.world.is_equal_on_ranks(checksum):
        problem = f"{subject} samples on other ranks: __iter__ must return all samples on each rank"
        raise TaskError("task.name", f"{problem}, because the run divides them")


def _checksum(run: Training) -> int:
    """Return a checksum of the first samples, of a copy that may count its passes."""
    samples = open_stream(copy.copy(run.task.train), run.config)
    checksum = 0
    for part in _parts(samples.__getitems__(range(FIRST_SAMPLES))):
        checksum = zlib.crc32(part, checksum)
    return checksum


def _parts(value: Any) -> Iterator[bytes]:
    """Yield the content of tensors, arrays, numbers and text in nested samples."""
    match value:
        case Tensor():
            plain = value.detach().cpu().reshape(-1).contiguous()
            yield plain.view(torch.uint8).numpy().tobytes()
        case np.ndarray() if value.dtype.hasobject:  # its bytes are addresses
            yield from _parts(value.tolist())
        case np.ndarray():
            yield value.tobytes()
        case str() | bytes() | int() | float():
            yield repr(value).encode("utf-8", "surrogatepass")
        case dict():
            for item in value.values():
                yield from _parts(item)
        case list() | tuple():
            for item in value:
                yield from _parts(item)
