"""The computations of a run in one plain process: handwritten PyTorch that uses none of the run's
strategies, launchers, optimizers or precisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from msgspec import structs

from distrain.models.build import build_task
from distrain.models.metric_state import move_metrics
from distrain.models.task import Task, collate_of, give_turn
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.process_group import World
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.epochs import Epochs
from distrain.runners.training.evaluation import MetricStates, in_evaluation_mode
from distrain.runners.training.loading import Batches
from distrain.runners.training.random_state import get_random_state, seed_generators
from distrain.runners.training.tap import FixedBatchPlan, Tensors, copy_to_cpu
from distrain.runners.training.task_optimizer import make_optimizer
from distrain.runners.training.turns import Turns
from distrain.runners.training.weights import has_weights, weight_of
from distrain.runners.verification.wide import in_double, widen_batch, widen_module

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class MicroBatch(NamedTuple):
    """A batch, its share of the step's samples (or their weight), and the rank that has it."""

    batch: Any
    share: float
    rank: int = 0


RandomState = dict[str, Any]
"""The states of the global generators of a rank."""


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
        return copy_to_cpu(self.model.named_parameters()), copy_to_cpu(self.model.named_buffers())

    @torch.no_grad()
    def load(self, weights: Tensors, buffers: Tensors) -> None:
        """Replace weights and buffers."""
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            value = weights.get(name, buffers.get(name))
            if value is not None and tensor.layout is torch.strided:
                tensor.copy_(value)

    def loss(self, batch: Any) -> torch.Tensor:
        with self._in_precision():
            return self.task.loss(self.model, batch)

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
                with self._in_precision():
                    metrics = self.task.metrics(self.model, batch)
                for name, (value, count) in states.take(metrics).items():
                    found[name] = found.get(name, Metrics()).plus(float(value), int(count))
        values = states.compute(World(0, 0, 1, self.device))
        return found | {name: Metrics.of_state(value) for name, value in values.items()}

    def convert(self, batch: Any) -> Any:
        """Return the batch in fp64 if the process is exact."""
        return widen_batch(batch) if self.exact else batch

    def _in_precision(self) -> AbstractContextManager[Any]:
        if self.exact:
            return in_double()
        dtype = AUTOCAST.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype) if dtype else nullcontext()

    def random_state(self) -> RandomState:
        """Return the states of this process's generators."""
        return get_random_state(self.device)


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
