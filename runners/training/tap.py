"""Writes, from within a real run, the tensors that verification compares.

These are the gradients as they reach the optimizer, and weights and buffers after each step.
Attached to a rank's training, the tap sets the sizes of the few steps and hooks into the
optimizer. Everything else is the run's own: launcher, strategy, precision and loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.tap_files import FOLDER, STEPS, tap_file
from distrain.runners.training.trainer import Training

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class FixedBatchPlan(BatchPlan):
    """An epoch whose steps have the given sizes, in samples."""

    sizes: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        return len(self.sizes)

    def totals(self) -> Iterator[int]:
        return iter(self.sizes)


def step_sizes(samples: int, batch_size: int, parts: int, drop_last: bool) -> tuple[int, ...]:
    """Return the samples of each verified step; `parts` are the micro-batches of all ranks.

    The first step gives all parts equally many samples, the second has one sample more. The
    third has as many samples as the last step of an epoch if that is fewer than `parts`; otherwise
    one fewer than the first, or as many if there is a single part.
    """
    even = 4 * parts
    last = 0 if drop_last else samples % batch_size
    if 0 < last < parts:
        scarce = last
    elif parts > 1:
        scarce = even - 1
    else:
        scarce = even
    return tuple(max(1, min(size, samples // STEPS)) for size in (even, even + 1, scarce))


def attach(training: Training, folder: Path) -> None:
    """Set the steps of a rank's training, and write their tensors into the run's folder."""
    _Tap(training, folder / FOLDER)


class _Tap:
    def __init__(self, training: Training, folder: Path) -> None:
        self._training = training
        self._folder = folder
        self._step = 0
        folder.mkdir(exist_ok=True)
        train = training.config.train
        world = training.world
        parts = world.size * train.accumulate
        plan = FixedBatchPlan(
            training.samples,
            train.batch_size,
            world.size,
            accumulate=train.accumulate,
            sizes=step_sizes(training.samples, train.batch_size, parts, train.drop_last),
        )
        training.batch_plan = lambda: plan  # type: ignore[method-assign]
        training.optimizer.register_step_pre_hook(self._before_step)
        training.optimizer.register_step_post_hook(self._after_step)
        self._write(
            sizes=plan.sizes,
            random=torch.get_rng_state(),
            random_of_device=_device_random_state(world.device),
            **self._weights_and_buffers(),
        )

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._gradients = {
            name: parameter.grad.detach().float().cpu().clone()
            for name, parameter in self._training.model.named_parameters()
            if parameter.grad is not None
        }
        found_inf = getattr(optimizer, "found_inf", None)
        self._skipped = found_inf is not None and float(found_inf) > 0
        self._rate = float(optimizer.param_groups[0]["lr"])

    def _after_step(self, *_: Any) -> None:
        self._step += 1
        self._write(
            gradients=self._shortened(self._gradients),
            skipped=self._skipped,
            rate=self._rate,
            **self._weights_and_buffers(),
        )

    def _weights_and_buffers(self) -> dict[str, Any]:
        model = self._training.model
        is_leader = self._training.world.is_leader
        return {
            "weights": self._shortened(_copy_to_cpu(dict(model.named_parameters()))),
            "buffers": _copy_to_cpu(dict(model.named_buffers())) if is_leader else {},
        }

    def _shortened(self, tensors: Tensors) -> Tensors | dict[str, str]:
        """Return the tensors on rank 0, and their digests on the other ranks."""
        if self._training.world.is_leader:
            return tensors
        return {name: digest(tensor) for name, tensor in tensors.items()}

    def _write(self, **content: Any) -> None:
        torch.save(content, tap_file(self._folder, self._training.world.rank, self._step))


def digest(tensor: torch.Tensor) -> str:
    """Return a digest of the tensor's bits; equal tensors have equal digests."""
    plain = tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
    return hashlib.blake2b(plain.numpy().data, digest_size=16).hexdigest()


def _copy_to_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _device_random_state(device: torch.device) -> torch.Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None
