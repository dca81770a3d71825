"""Checks before the first step that the data are the same for all that read them.

Ranks share the samples of one data set. If they have different ones, as after a random split
without a fixed seed, some samples are used twice and others never, and nothing else shows it. Of a
stream, each rank and loader process reads all samples.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from distrain.models.data import FirstSamples, length
from distrain.models.errors import TaskError
from distrain.runners.training.loading import open_stream
from distrain.runners.training.random_state import (
    get_random_state,
    seed_generators,
    set_random_state,
)
from distrain.runners.training.state_copy import copy_data
from distrain.runners.training.trainer import Training

FIRST_SAMPLES = 4
PLAIN = Tensor | np.ndarray | str | bytes | int | float
SAMPLE_TOLERANCE = 1e-3  # of the mean over a sample's numbers, relative to their size


def check_data(run: Training) -> None:
    """Compare the data of all ranks. Raises TaskError, on at least one rank, where they differ."""
    if run.epochs.is_endless:
        check_stream(run)
    else:
        _check_samples(run, "training", run.task.train)
    if run.task.eval is not None:
        _check_samples(run, "evaluation", run.task.eval)


class _Summary(NamedTuple):
    """The number of samples, and of the first one how many numbers it has, their sum and that of
    their squares. The last three are 0 where it differs from read to read.
    """

    samples: float
    numbers: float
    total: float
    squares: float


def _check_samples(run: Training, kind: str, data: Any) -> None:
    """Compare the number of samples, and the first one, with those of rank 0.

    Decoders of different hosts may round differently. A sample that is random is not compared.
    """
    world = run.world
    if world.size == 1:
        return
    own = _summarize(run, data)
    shared = torch.tensor(own, dtype=torch.float64, device=world.device)
    world.broadcast_(shared)
    of_leader = _Summary(*shared.tolist())
    problem = ""
    if own.samples != of_leader.samples:
        problem = f"are {own.samples:.0f} samples on rank {world.rank} and "
        problem += f"{of_leader.samples:.0f} on rank 0"
    elif own.numbers and of_leader.numbers and not _is_same_sample(own, of_leader):
        problem = f"begin with another sample on rank {world.rank} than on rank 0"
    if problem:
        raise TaskError(
            "task.name",
            f"the {kind} data, of class {_class_name(data)}, {problem}: each rank must make all "
            "samples in the same order, because the run divides them",
        )


def _is_same_sample(one: _Summary, other: _Summary) -> bool:
    """Return whether the means of their numbers are equal, relative to the size of the numbers."""
    difference = abs(one.total - other.total)
    size = math.sqrt(one.numbers * max(one.squares, other.squares))
    return one.numbers == other.numbers and difference <= SAMPLE_TOLERANCE * size


def _summarize(run: Training, data: Any) -> _Summary:
    device = run.world.device
    state = get_random_state(device)
    found = []
    for _ in range(2):
        seed_generators(0)
        with suppress(Exception):  # who reads the data of a run reports it
            found.append(_read_first(data))
    set_random_state(state, device)
    is_same = len(found) == 2 and found[0] == found[1]
    return _Summary(length(data), *(found[0] if is_same else (0.0, 0.0, 0.0)))


def _read_first(data: Any) -> tuple[float, float, float]:
    """Return how many numbers the first sample has, their sum and that of their squares."""
    data = copy_data(data)
    fetch = getattr(data, "__getitems__", None)
    key: Any = (0, 0) if getattr(data, "wants_epoch", False) else 0
    numbers, total, squares = 0, 0.0, 0.0
    for leaf in leaves_of(fetch([key]) if fetch else data[key]):
        if isinstance(leaf, Tensor | np.ndarray | int | float):
            values = torch.as_tensor(leaf).detach().double()
            numbers += values.numel()
            total += float(values.sum())
            squares += float(values.square().sum())
    return numbers, total, squares


def _class_name(data: Any) -> str:
    return type(data.dataset if isinstance(data, FirstSamples) else data).__name__


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
    return zlib.crc32(content_of(samples.__getitems__(range(FIRST_SAMPLES))))


def content_of(value: Any) -> bytes:
    """Return the bytes of the tensors, arrays, numbers and text in nested samples."""
    return b"".join(_bytes_of(leaf) for leaf in leaves_of(value) if isinstance(leaf, PLAIN))


def has_objects(value: Any) -> bool:
    """Return whether nested samples have objects that `content_of` leaves out."""
    return not all(isinstance(leaf, PLAIN) for leaf in leaves_of(value))


def _bytes_of(leaf: Tensor | np.ndarray | str | bytes | float) -> bytes:
    match leaf:
        case Tensor():
            dense = leaf if leaf.layout is torch.strided else leaf.to_dense()
            plain = dense.detach().cpu().reshape(-1).contiguous()
            return plain.view(torch.uint8).numpy().tobytes()
        case np.ndarray():
            return leaf.tobytes()
    return repr(leaf).encode("utf-8", "surrogatepass")


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the tensors, arrays, numbers, text and other objects in nested samples."""
    match value:
        case np.ndarray() if value.dtype.hasobject:  # its bytes are addresses
            yield from leaves_of(value.tolist())
        case dict():
            for item in value.values():
                yield from leaves_of(item)
        case list() | tuple():
            for item in value:
                yield from leaves_of(item)
        case None:
            return
        case _:
            yield value
