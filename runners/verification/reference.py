"""The same steps in one plain process: the loop that one writes by hand, with none of the run's
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

from models.build import build_task
from models.task import Task
from runners.checkpoint import seed_generators
from runners.config import RunConfig, Train
from runners.loading import Batches, Mover
from runners.plan import Plan
from runners.verification.tap import Sized, Tensors

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Part(NamedTuple):
    """A batch with its share of the step's samples, and the rank whose it is."""

    batch: Any
    share: float
    rank: int = 0


class Taken(NamedTuple):
    """What a step came to; parameters without a part in the loss have no gradient."""

    gradients: Tensors
    weights: Tensors
    buffers: Tensors
    skipped: bool


class Process:
    """One plain process with a model of its own; `exact` computes in fp64."""

    def __init__(
        self, config: RunConfig, plan: Plan, device: torch.device, exact: bool = False
    ) -> None:
        self.config, self.plan, self.device, self.exact = config, plan, device, exact
        self.precision = "fp32" if exact else plan.precision
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        self.task = _task(config, device)
        self.model = self.task.model.to(device)
        if config.train.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if exact:
            self.model.double()

    def steps(self, sizes: Sequence[int], ranks: int, accumulate: int) -> Iterator[list[Part]]:
        """The parts of each step: those of so many ranks and micro-batches."""
        config, plan = self.config, structs.replace(self.plan, loader_workers=[0] * ranks)
        order = Sized(
            len(self.task.train),  # type: ignore[arg-type]
            config.train.batch_size,
            ranks,
            accumulate=accumulate,
            sizes=tuple(sizes),
        )
        mover = Mover(self.task, self.device, config.train.channels_last)
        streams = [
            Batches(self.task, config, plan, rank, mover).epoch(0, order) for rank in range(ranks)
        ]
        for shares in zip(*(order.shares(rank) for rank in range(ranks)), strict=True):
            yield [
                Part(self._as_computed(next(streams[rank])), count / share.total, rank)
                for rank, share in enumerate(shares)
                for count in share.counts
            ]

    def _as_computed(self, batch: Any) -> Any:
        return tree_map(_doubled, batch) if self.exact else batch

    def loss(self, part: Part) -> torch.Tensor:
        with self._autocast():
            return self.task.loss(self.model, part.batch)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = AUTOCAST.get(self.precision)
        return torch.autocast(self.device.type, dtype=kind) if kind else nullcontext()

    def trained(
        self,
        steps: Iterable[list[Part]],
        rates: Sequence[float],
        randoms: dict[int, torch.Tensor],
        skips: Sequence[bool] | None = None,
        of: int = 1,
        wire: torch.dtype | None = None,
        given: Sequence[Tensors] = (),
    ) -> Iterator[Taken]:
        """Train; `randoms` are the states of the generator by rank at the start. The steps to
        leave out are `skips`, by default those in which fp16 overflows. Gradients are the mean
        `of` so many that add up to so many times theirs; those of ranks are rounded to `wire`,
        and added up so. The optimizer steps by those `given`, where there are any.
        """
        train = self.config.train
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        optimizer = _optimizer(train, parameters)
        scaler = GradScaler(self.device.type, enabled=self.precision == "fp16")
        for number, (parts, rate) in enumerate(zip(steps, rates, strict=True)):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            for _, own in groupby(parts, key=lambda part: part.rank if wire else 0):
                others = _taken_from(parameters) if wire else []
                for part in own:
                    with self._as_rank(part.rank, randoms):
                        scaler.scale(self.loss(part) * (part.share * of)).backward()
                if wire:
                    _add_narrowly(parameters, others, wire)
            for each in parameters:
                if of > 1 and each.grad is not None:
                    each.grad /= of
            scaler.unscale_(optimizer)
            if train.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, train.clip_norm)
            gradients = {
                name: each.grad.detach().cpu().clone()
                for name, each in self.model.named_parameters()
                if each.grad is not None
            }
            finite = all(bool(each.isfinite().all()) for each in gradients.values())
            skipped = skips[number] if skips else self.precision == "fp16" and not finite
            for name, each in self.model.named_parameters() if given else ():
                if each.grad is not None and name in given[number]:
                    each.grad.copy_(given[number][name])
            if not (skips and skipped):
                scaler.step(optimizer)
            scaler.update()
            yield Taken(gradients, *self.state(), skipped)

    def state(self) -> tuple[Tensors, Tensors]:
        """Weights and buffers."""
        model = self.model
        weights = {name: each.detach().cpu().clone() for name, each in model.named_parameters()}
        return weights, {name: each.cpu().clone() for name, each in model.named_buffers()}

    @contextmanager
    def _as_rank(self, rank: int, randoms: dict[int, torch.Tensor]) -> Iterator[None]:
        """With that rank's random numbers; running statistics are those of rank 0."""
        before = [buffer.clone() for buffer in self.model.buffers()] if rank else []
        if randoms:
            torch.set_rng_state(randoms[rank])
        yield
        if randoms:
            randoms[rank] = torch.get_rng_state()
        if rank:
            for buffer, was in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(was)

    @torch.no_grad()
    def evaluated(self) -> tuple[int, dict[str, tuple[float, int]]]:
        """Samples, and sum and count of each metric, over the evaluation set."""
        self.model.eval()
        total: dict[str, tuple[float, int]] = {}
        places = range(len(self.task.eval))  # type: ignore[arg-type]
        for start in range(0, len(places), 64):
            items = [self.task.eval[index] for index in places[start : start + 64]]
            collate = type(self.task).collate or torch.utils.data.default_collate
            batch = self._as_computed(self.task.to(collate(items), self.device))
            with self._autocast():
                found = self.task.metrics(self.model, batch)
            for name, (value, count) in found.items():
                before = total.get(name, (0.0, 0))
                total[name] = before[0] + float(value), before[1] + count
        self.model.train()
        return len(places), total


def _task(config: RunConfig, device: torch.device) -> Task:
    seed_generators(config.train.seed)
    return build_task(
        config.task,
        config.model,
        config.data,
        label_smoothing=config.train.label_smoothing,
        seed=config.train.seed,
        device=device,
    )


def _optimizer(train: Train, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    decay = train.weight_decay
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.0, momentum=train.momentum, weight_decay=decay)
    kind = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, weight_decay=decay)


def _taken_from(parameters: list[nn.Parameter]) -> list[torch.Tensor | None]:
    """Their gradients; they are left without."""
    gradients = [each.grad for each in parameters]
    for each in parameters:
        each.grad = None
    return gradients


def _add_narrowly(
    parameters: list[nn.Parameter], others: list[torch.Tensor | None], wire: torch.dtype
) -> None:
    """Gradients, and those of ranks before, as they are added up in a narrower type."""
    for each, other in zip(parameters, others, strict=True):
        if each.grad is None:
            each.grad = other
        else:
            narrow = each.grad.to(wire)
            each.grad.copy_(narrow if other is None else narrow + other.to(wire))


def _doubled(value: Any) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floats else value
