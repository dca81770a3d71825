"""The forward and backward passes of one step in the plain process, rounded in one of several
correct ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import torch
from torch import nn

from distrain.runners.training.random_state import set_random_state
from distrain.runners.training.tap import Tensors, copy_to_cpu
from distrain.runners.training.turns import Turns
from distrain.runners.verification.reference import MicroBatch, PlainProcess, RandomState


class Backward(NamedTuple):
    """What the forward and backward passes of a step leave behind, on the CPU.

    Parameters that the loss does not use have no gradient.
    """

    gradients: Tensors
    buffers: Tensors


class Rounding(NamedTuple):
    """One of several correct ways to compute the gradient of a step.

    `divisor`: gradients are summed this many times too large and then divided, as by strategies
    that average the means of ranks.
    `weighs_gradients`: gradients are multiplied by the share of their samples, not losses.
    `gradient_dtype`: type to which each rank's gradients are rounded before they are divided and
    added.
    """

    divisor: int = 1
    weighs_gradients: bool = False
    gradient_dtype: torch.dtype | None = None

    @property
    def is_plain(self) -> bool:
        """Whether gradients of all micro-batches are added up as they are."""
        return not self.weighs_gradients and self.gradient_dtype is None

    def groups(self, parts: Sequence[MicroBatch]) -> list[list[MicroBatch]]:
        """Return the micro-batches whose gradients are added up before they are rounded."""
        if self.weighs_gradients:
            return [[part] for part in parts]
        if self.gradient_dtype is not None:
            return [[*group] for _, group in groupby(parts, key=lambda part: part.rank)]
        return [[*parts]]


def backward(
    process: PlainProcess,
    parts: Sequence[MicroBatch],
    rounding: Rounding,
    random_states: Sequence[RandomState] = (),
    scale: float = 1.0,
    buffers: Sequence[Tensors] = (),
) -> Backward:
    """Return the gradients of a step, unscaled and clipped.

    `random_states`: those of the ranks before the step, for models that draw numbers.
    `scale`: loss scale of fp16.
    `buffers`: with which each rank begins the step, if not with those of this process.
    """
    ranks = _Ranks(process, random_states, buffers)
    process.model.zero_grad()
    for group in rounding.groups(parts):
        _add_gradients(process, group, rounding, scale, ranks)
    parameters = [each for each in process.model.parameters() if each.requires_grad]
    divisor = 1 if rounding.gradient_dtype else rounding.divisor  # the rounded have been divided
    _multiply_gradients(parameters, 1 / (scale * divisor))
    turns = process.optimizer if isinstance(process.optimizer, Turns) else None
    stepped = {*(turns.parameters if turns else parameters)}
    if process.config.train.clip_norm is not None:
        nn.utils.clip_grad_norm_(
            [each for each in parameters if each in stepped], process.config.train.clip_norm
        )
    gradients = copy_to_cpu(
        (name, each.grad)
        for name, each in process.model.named_parameters()
        if each.grad is not None and each in stepped
    )
    ranks.load(0)
    return Backward(gradients, process.state()[1])


def _add_gradients(
    process: PlainProcess,
    group: Sequence[MicroBatch],
    rounding: Rounding,
    scale: float,
    ranks: _Ranks,
) -> None:
    """Add the gradients of a group, weighed and rounded, to those that the parameters have."""
    parameters = [each for each in process.model.parameters() if each.requires_grad]
    earlier = [] if rounding.is_plain else _detach_gradients(parameters)
    for part in group:
        factor = 1.0 if rounding.weighs_gradients else part.share * rounding.divisor
        with ranks.take_turn(part.rank):
            # In two products, as in the run: a loss in fp16 may overflow with the second.
            (process.loss(part.batch) * factor * scale).backward()
        if rounding.weighs_gradients:
            _multiply_gradients(parameters, part.share)
    if not rounding.is_plain:
        dtype = rounding.gradient_dtype
        _add_rounded(parameters, earlier, dtype, rounding.divisor if dtype else 1)


def _detach_gradients(parameters: list[nn.Parameter]) -> list[torch.Tensor | None]:
    """Return the gradients, and remove them from the parameters."""
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients


def _add_rounded(
    parameters: list[nn.Parameter],
    earlier: list[torch.Tensor | None],
    dtype: torch.dtype | None,
    divisor: int,
) -> None:
    """Add earlier gradients to the current ones, which are rounded to `dtype` (None: not at all)
    and then divided, as by torch's compressing hooks.
    """
    for parameter, other in zip(parameters, earlier, strict=True):
        if parameter.grad is None:
            parameter.grad = other
            continue
        total = parameter.grad.to(dtype or parameter.dtype) / divisor
        if other is not None:
            total = total + other.to(dtype or parameter.dtype)
        parameter.grad.copy_(total)


def _multiply_gradients(parameters: list[nn.Parameter], factor: float) -> None:
    if factor == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad *= factor


class _Ranks:
    """What each rank has of its own within a step of a plain process.

    That is random numbers, and what `forward` may move: buffers and weights that are not trained.
    """

    def __init__(
        self,
        process: PlainProcess,
        random_states: Sequence[RandomState],
        buffers: Sequence[Tensors],
    ) -> None:
        self._process = process
        self._random_states = dict(enumerate(random_states))
        model = process.model
        frozen = {name: each for name, each in model.named_parameters() if not each.requires_grad}
        movable = frozen | dict(model.named_buffers())
        self._movable = {n: each for n, each in movable.items() if each.layout is torch.strided}
        self._start = {name: tensor.clone() for name, tensor in self._movable.items()}
        self._own = {rank: self._start | own for rank, own in enumerate(buffers)}

    @torch.no_grad()
    def load(self, rank: int) -> None:
        """Let the process have what this rank has."""
        own = self._own.get(rank, self._start)
        for name, tensor in self._movable.items():
            tensor.copy_(own[name])

    @contextmanager
    def take_turn(self, rank: int) -> Iterator[None]:
        """Compute as this rank does."""
        self.load(rank)
        if self._random_states:
            set_random_state(self._random_states[rank], self._process.device)
        yield
        if self._random_states:
            self._random_states[rank] = self._process.random_state()
        self._own[rank] = {name: tensor.clone() for name, tensor in self._movable.items()}
