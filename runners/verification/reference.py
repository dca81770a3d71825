"""The computations of a run in one plain process: handwritten PyTorch that uses none of the run's
strategies, launchers, optimizers or precisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
from msgspec import structs
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from distrain.models.build import build_task
from distrain.models.metric_state import move_metrics
from distrain.models.task import Task, collate_of, give_turn
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.training.epochs import Epochs
from distrain.runners.training.evaluation import MetricStates, in_evaluation_mode
from distrain.runners.training.loading import Batches, BatchMover
from distrain.runners.training.random_state import (
    get_random_state,
    seed_generators,
    set_random_state,
)
from distrain.runners.training.tap import FixedBatchPlan, Tensors
from distrain.runners.training.task_optimizer import make_optimizer
from distrain.runners.training.turns import Turns
from distrain.runners.training.weights import has_weights, weight_of
from distrain.runners.verification.wide import widen_module

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class MicroBatch(NamedTuple):
    """A batch, its share of the step's samples (or their weight), and the rank that has it."""

    batch: Any
    share: float
    rank: int = 0


RandomState = dict[str, Any]
"""The states of the global generators of a rank."""


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


class PlainProcess:
    """A model in this process alone; with `exact` it computes in fp64."""

    def __init__(
        self, config: RunConfig, plan: Plan, device: torch.device, exact: bool = False
    ) -> None:
        self.config = config
        self.plan = plan
        self.device = device
        self.exact = exact
        self.precision = "fp32" if exact else plan.precision
        if not exact:  # which has nothing in fp32; these settings are those of the whole process
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        self.task = _build_task(config, device)
        self.epochs = Epochs(self.task, config)
        self.model = self.task.model.to(device)
        move_metrics(self.task, device)
        if config.train.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if exact:
            widen_module(self.model)
        # Sets the turn of the task, too. The plain process itself makes no steps.
        self.optimizer, self.own_rate = make_optimizer(config.train, self.task, self.model)

    def begin(self, step: int) -> None:
        """Let the optimizer of this step have its turn, where a task has several."""
        if isinstance(self.optimizer, Turns):
            give_turn(self.task, self.optimizer.begin(step - 1))

    def steps(
        self, epochs: Iterable[Sequence[int]], ranks: int, accumulate: int
    ) -> Iterator[list[MicroBatch]]:
        """Yield the micro-batches of each step, cut as for this many ranks and micro-batches a
        rank; `epochs` are the samples of each step by epoch.
        """
        config = self.config
        plan = structs.replace(self.plan, loader_workers=[0] * ranks)
        mover = BatchMover(self.task, self.device, config.train.channels_last)
        batches = [Batches(self.task, config, plan, rank, mover) for rank in range(ranks)]
        for epoch, sizes in enumerate(epochs):
            order = FixedBatchPlan(
                self.epochs.samples,
                config.train.batch_size,
                ranks,
                accumulate=accumulate,
                sizes=tuple(sizes),
            )
            streams = [each.epoch(epoch, order) for each in batches]
            for shares in zip(*(order.shares(rank) for rank in range(ranks)), strict=True):
                counts = [
                    (rank, count) for rank, share in enumerate(shares) for count in share.counts
                ]
                parts = [(next(streams[rank]), rank, count) for rank, count in counts]
                weights = [self._weight(batch, count) for batch, _, count in parts]
                total = math.fsum(weights) or 1.0
                yield [
                    MicroBatch(self.convert(batch), weight / total, rank)
                    for (batch, rank, _), weight in zip(parts, weights, strict=True)
                ]

    def _weight(self, batch: Any, count: int) -> float:
        return weight_of(self.task, batch) if count and has_weights(self.task) else float(count)

    def state(self) -> tuple[Tensors, Tensors]:
        """Return copies of weights and buffers, on the CPU."""
        weights = {name: copy_to_cpu(tensor) for name, tensor in self.model.named_parameters()}
        buffers = {name: copy_to_cpu(tensor) for name, tensor in self.model.named_buffers()}
        return weights, buffers

    @torch.no_grad()
    def load(self, weights: Tensors, buffers: Tensors) -> None:
        """Replace weights and buffers."""
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            value = weights.get(name, buffers.get(name))
            if value is not None and tensor.layout is torch.strided:
                tensor.copy_(value)

    def loss(self, batch: Any) -> torch.Tensor:
        with self.autocast(), _in_double() if self.exact else nullcontext():
            return self.task.loss(self.model, batch)

    def backward(
        self,
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
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        turns = self.optimizer if isinstance(self.optimizer, Turns) else None
        stepped = {*(turns.parameters if turns else parameters)}
        dtype = rounding.gradient_dtype
        ranks = _Ranks(self, random_states, buffers)
        self.model.zero_grad()
        # If gradients are sent in fp32, those of all parts are simply added up, as one group.
        for _, group in groupby(
            enumerate(parts),
            key=lambda part: part[0] if rounding.weighs_gradients else part[1].rank if dtype else 0,
        ):
            apart = rounding.weighs_gradients or dtype is not None
            earlier = _detach_gradients(parameters) if apart else []
            for _, part in group:
                factor = 1.0 if rounding.weighs_gradients else part.share * rounding.divisor
                with ranks.take_turn(part.rank):
                    # In two products, as in the run: a loss in fp16 may overflow with the second.
                    (self.loss(part.batch) * factor * scale).backward()
                if rounding.weighs_gradients:
                    _multiply_gradients(parameters, part.share)
            if apart:
                _add_rounded(parameters, earlier, dtype, rounding.divisor if dtype else 1)
        divisor = 1 if dtype else rounding.divisor  # the rounded ones have been divided
        _multiply_gradients(parameters, 1 / (scale * divisor))
        if self.config.train.clip_norm is not None:
            nn.utils.clip_grad_norm_(
                [each for each in parameters if each in stepped], self.config.train.clip_norm
            )
        gradients = {
            name: copy_to_cpu(parameter.grad)
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None and parameter in stepped
        }
        ranks.load(0)
        return Backward(gradients, self.state()[1])

    @torch.no_grad()
    def evaluate(
        self, pieces: Iterable[Sequence[int]], *, training: bool = False
    ) -> dict[str, Metrics]:
        """Return the metrics of batches with these samples of the evaluation set.

        With `training`, the modules keep the modes that they have in training.
        """
        collate = collate_of(self.task) or torch.utils.data.default_collate
        found: dict[str, Metrics] = {}
        states = MetricStates()
        data = self.task.eval
        assert data is not None
        with nullcontext() if training else in_evaluation_mode(self.model):
            for piece in pieces:
                fetch = getattr(data, "__getitems__", None)
                items = fetch(list(piece)) if fetch else [data[index] for index in piece]
                batch = self.convert(self.task.to(collate(items), self.device))
                with self.autocast(), _in_double() if self.exact else nullcontext():
                    metrics = self.task.metrics(self.model, batch)
                for name, (value, count) in states.take(metrics).items():
                    found[name] = found.get(name, Metrics()).plus(float(value), int(count))
        values = states.compute(World(0, 0, 1, self.device))
        return found | {name: Metrics.of_state(value) for name, value in values.items()}

    def convert(self, batch: Any) -> Any:
        """Return the batch in fp64 if the process is exact."""
        return tree_map(_to_double, batch) if self.exact else batch

    def autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype) if dtype else nullcontext()

    def random_state(self) -> RandomState:
        """Return the states of this process's generators."""
        return get_random_state(self.device)


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


@dataclass(frozen=True)
class Metrics:
    """The sum and the count of a metric, and the sum of the magnitudes that were added.

    The value that an object computes from its state is a sum of one.
    """

    total: float = 0.0
    count: int = 0
    magnitude: float = 0.0
    is_of_state: bool = False

    @classmethod
    def of_state(cls, value: float) -> Metrics:
        return cls(value, 1, abs(value), True)

    def plus(self, value: float, count: int) -> Metrics:
        return Metrics(self.total + value, self.count + count, self.magnitude + abs(value))


@contextmanager
def _in_double() -> Iterator[None]:
    """Let a task compute in fp64 where it makes tensors, or converts them to fp32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _FloatIsDouble():
            yield
    finally:
        torch.set_default_dtype(before)


class _FloatIsDouble(TorchFunctionMode):
    """Within it, `float()` of a tensor is `double()`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function = torch.Tensor.double if func is torch.Tensor.float else func
        return function(*args, **(kwargs or {}))


def _build_task(config: RunConfig, device: torch.device) -> Task:
    seed_generators(config.train.seed)
    return build_task(
        config.task,
        config.model,
        config.data,
        label_smoothing=config.train.label_smoothing,
        seed=config.train.seed,
        device=device,
    )


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


def copy_to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return dense.detach().cpu().clone()


def _to_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value
