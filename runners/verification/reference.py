"""The steps of a run in one plain process: a handwritten PyTorch loop that uses none of the run's
strategies, launchers, optimizers or precisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from typing import Any, NamedTuple

import torch
from msgspec import structs
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils._pytree import tree_map

from distrain.models.build import build_task
from distrain.models.task import Task
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sections import TrainConfig
from distrain.runners.training.checkpoint import seed_generators
from distrain.runners.training.loading import Batches, BatchMover
from distrain.runners.training.tap import FixedBatchPlan, Tensors

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
EVALUATION_BATCH = 64  # samples


class MicroBatch(NamedTuple):
    """A batch, its share of the step's samples, and the rank that trains on it in the run."""

    batch: Any
    share: float
    rank: int = 0


class StepResult(NamedTuple):
    """Tensors after a step, on the CPU. Parameters that the loss does not use have no gradient."""

    gradients: Tensors
    weights: Tensors
    buffers: Tensors
    skipped: bool  # gradients overflowed in fp16


class PlainProcess:
    """A model trained in this process alone; with `exact` it computes in fp64."""

    def __init__(
        self, config: RunConfig, plan: Plan, device: torch.device, exact: bool = False
    ) -> None:
        self.config = config
        self.plan = plan
        self.device = device
        self.exact = exact
        self.precision = "fp32" if exact else plan.precision
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        self.task = _build_task(config, device)
        self.model = self.task.model.to(device)
        if config.train.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if exact:
            self.model.double()

    def steps(
        self, sizes: Sequence[int], ranks: int, accumulate: int
    ) -> Iterator[list[MicroBatch]]:
        """Yield the micro-batches of each step, cut as for this many ranks and micro-batches a
        rank; `sizes` are the samples of each step.
        """
        config = self.config
        plan = structs.replace(self.plan, loader_workers=[0] * ranks)
        order = FixedBatchPlan(
            len(self.task.train),  # type: ignore[arg-type]
            config.train.batch_size,
            ranks,
            accumulate=accumulate,
            sizes=tuple(sizes),
        )
        mover = BatchMover(self.task, self.device, config.train.channels_last)
        streams = [
            Batches(self.task, config, plan, rank, mover).epoch(0, order) for rank in range(ranks)
        ]
        for shares in zip(*(order.shares(rank) for rank in range(ranks)), strict=True):
            yield [
                MicroBatch(self._convert(next(streams[rank])), count / share.total, rank)
                for rank, share in enumerate(shares)
                for count in share.counts
            ]

    def loss(self, part: MicroBatch) -> torch.Tensor:
        with self._autocast():
            return self.task.loss(self.model, part.batch)

    def train(
        self,
        steps: Iterable[list[MicroBatch]],
        rates: Sequence[float],
        random_states: dict[int, torch.Tensor],
        *,
        skips: Sequence[bool] | None = None,
        divisor: int = 1,
        gradient_dtype: torch.dtype | None = None,
        step_gradients: Sequence[Tensors] = (),
    ) -> Iterator[StepResult]:
        """Train, and yield the result of each step.

        `rates`: learning rate of each step.
        `random_states`: state of the CPU generator by rank at the start; updated in place.
        `skips`: the steps to leave out; None leaves out those that overflow in fp16.
        `divisor`: gradients are summed this many times too large and then divided, as by
        strategies that average the means of ranks.
        `gradient_dtype`: type to which each rank's gradients are rounded before they are added.
        `step_gradients`: gradients for the optimizer in place of the computed ones, by step.
        """
        config = self.config.train
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        optimizer = _make_optimizer(config, parameters)
        scaler = GradScaler(self.device.type, enabled=self.precision == "fp16")
        for number, (parts, rate) in enumerate(zip(steps, rates, strict=True)):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            # If gradients are sent in fp32, those of all ranks are simply added up, as one group.
            for _, group_parts in groupby(
                parts, key=lambda part: part.rank if gradient_dtype else 0
            ):
                earlier = _detach_gradients(parameters) if gradient_dtype else []
                for part in group_parts:
                    with self._as_rank(part.rank, random_states):
                        scaler.scale(self.loss(part) * (part.share * divisor)).backward()
                if gradient_dtype:
                    _add_rounded(parameters, earlier, gradient_dtype)
            _divide_gradients(parameters, divisor)
            scaler.unscale_(optimizer)
            if config.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, config.clip_norm)
            gradients = self._gradients()
            if skips is None:
                skipped = self.precision == "fp16" and not _all_finite(gradients)
            else:
                skipped = skips[number]
            if step_gradients:
                self._replace_gradients(step_gradients[number])
            # The scaler itself leaves out a step that overflows here.
            if skips is None or not skipped:
                scaler.step(optimizer)
            scaler.update()
            weights, buffers = self.state()
            yield StepResult(gradients, weights, buffers, skipped)

    def state(self) -> tuple[Tensors, Tensors]:
        """Return copies of weights and buffers, on the CPU."""
        weights = {name: _copy(tensor) for name, tensor in self.model.named_parameters()}
        buffers = {name: _copy(tensor) for name, tensor in self.model.named_buffers()}
        return weights, buffers

    @torch.no_grad()
    def evaluate(self) -> tuple[int, dict[str, tuple[float, int]]]:
        """Evaluate all samples once; return their number, and sum and count of each metric."""
        self.model.eval()
        totals: dict[str, tuple[float, int]] = {}
        indices = range(len(self.task.eval))  # type: ignore[arg-type]
        for start in range(0, len(indices), EVALUATION_BATCH):
            items = [self.task.eval[index] for index in indices[start : start + EVALUATION_BATCH]]
            collate = type(self.task).collate or torch.utils.data.default_collate
            batch = self._convert(self.task.to(collate(items), self.device))
            with self._autocast():
                metrics = self.task.metrics(self.model, batch)
            for name, (value, count) in metrics.items():
                total, total_count = totals.get(name, (0.0, 0))
                totals[name] = total + float(value), total_count + int(count)
        self.model.train()
        means = {name: total / count for name, (total, count) in totals.items() if count}
        derived = {name: (float(value), 1) for name, value in self.task.derived(means).items()}
        return len(indices), totals | derived

    def _convert(self, batch: Any) -> Any:
        return tree_map(_to_double, batch) if self.exact else batch

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        return torch.autocast(self.device.type, dtype=dtype) if dtype else nullcontext()

    def _gradients(self) -> Tensors:
        return {
            name: _copy(parameter.grad)
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }

    def _replace_gradients(self, gradients: Tensors) -> None:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and name in gradients:
                parameter.grad.copy_(gradients[name])

    @contextmanager
    def _as_rank(self, rank: int, random_states: dict[int, torch.Tensor]) -> Iterator[None]:
        """Compute with the random numbers of this rank; only rank 0 updates the buffers (running
        statistics).
        """
        buffers = list(self.model.buffers()) if rank else []
        saved = [buffer.clone() for buffer in buffers]
        if random_states:
            torch.set_rng_state(random_states[rank])
        yield
        if random_states:
            random_states[rank] = torch.get_rng_state()
        for buffer, value in zip(buffers, saved, strict=True):
            buffer.copy_(value)


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


def _make_optimizer(config: TrainConfig, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    decay = config.weight_decay
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.0, momentum=config.momentum, weight_decay=decay)
    adam = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return adam(parameters, weight_decay=decay)


def _detach_gradients(parameters: list[nn.Parameter]) -> list[torch.Tensor | None]:
    """Return the gradients, and remove them from the parameters."""
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients


def _add_rounded(
    parameters: list[nn.Parameter], earlier: list[torch.Tensor | None], gradient_dtype: torch.dtype
) -> None:
    """Add the gradients of earlier ranks to the current ones, both rounded to `gradient_dtype`."""
    for parameter, other in zip(parameters, earlier, strict=True):
        if parameter.grad is None:
            parameter.grad = other
            continue
        total = parameter.grad.to(gradient_dtype)
        if other is not None:
            total = total + other.to(gradient_dtype)
        parameter.grad.copy_(total)


def _divide_gradients(parameters: list[nn.Parameter], divisor: int) -> None:
    if divisor == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad /= divisor


def _all_finite(tensors: Tensors) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().clone()


def _to_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value
