"""Leaves, from within a real run, what verification compares: gradients as they reach the
optimizer, weights and buffers after each step.

Attached to a rank's training it decides the sizes of the few steps, and listens at the optimizer;
everything else is the run's own: launcher, strategy, precision, loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from runners.order import Order
from runners.training import Training
from runners.verification import FOLDER, STEPS

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Sized(Order):
    """An epoch of steps of these sizes."""

    sizes: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        return len(self.sizes)

    def totals(self) -> Iterator[int]:
        return iter(self.sizes)


def sizes(samples: int, batch_size: int, parts: int, drop_last: bool) -> tuple[int, ...]:
    """Samples of each step: as many for every micro-batch of every rank; one more; and what the
    last step of this config's epoch leaves to some of them only, where it does.
    """
    even = 4 * parts
    last = 0 if drop_last else samples % batch_size
    scarce = last if 0 < last < parts else even - 1 if parts > 1 else even
    return tuple(max(1, min(size, samples // STEPS)) for size in (even, even + 1, scarce))


def attach(training: Training, folder: Path) -> None:
    """Listen to a rank's training, and leave what it hears in this record."""
    _Tap(training, folder / FOLDER)


class _Tap:
    def __init__(self, training: Training, folder: Path) -> None:
        self._training, self._folder, self._step = training, folder, 0
        folder.mkdir(exist_ok=True)
        train, world = training.config.train, training.world
        order = Sized(
            training.samples,
            train.batch_size,
            world.size,
            accumulate=train.accumulate,
            sizes=sizes(
                training.samples, train.batch_size, world.size * train.accumulate, train.drop_last
            ),
        )
        training.order = lambda: order  # type: ignore[method-assign]
        training.optimizer.register_step_pre_hook(self._before)
        training.optimizer.register_step_post_hook(self._after)
        self._write(
            sizes=order.sizes,
            random=torch.get_rng_state(),
            random_of_device=_device_state(world.device),
            **self._state(),
        )

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        self._gradients = {
            name: parameter.grad.detach().float().cpu().clone()
            for name, parameter in self._training.model.named_parameters()
            if parameter.grad is not None
        }
        found = getattr(optimizer, "found_inf", None)
        self._skipped = bool(found is not None and float(found) > 0)
        self._rate = float(optimizer.param_groups[0]["lr"])

    def _after(self, *_: Any) -> None:
        self._step += 1
        self._write(
            gradients=self._mine(self._gradients),
            skipped=self._skipped,
            rate=self._rate,
            **self._state(),
        )

    def _state(self) -> dict[str, Any]:
        model = self._training.model
        return {
            "weights": self._mine(_cpu(dict(model.named_parameters()))),
            "buffers": _cpu(dict(model.named_buffers())) if self._training.world.leads else {},
        }

    def _mine(self, tensors: Tensors) -> Tensors | dict[str, str]:
        """The tensors of rank 0, of other ranks what tells whether theirs are the same."""
        if self._training.world.leads:
            return tensors
        return {name: digest(tensor) for name, tensor in tensors.items()}

    def _write(self, **content: Any) -> None:
        torch.save(content, place(self._folder, self._training.world.rank, self._step))


def place(folder: Path, rank: int, step: int) -> Path:
    """The file of a rank after so many steps."""
    return folder / f"rank-{rank}-step-{step}.pt"


def digest(tensor: torch.Tensor) -> str:
    """Of the very bits."""
    plain = tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8)
    return hashlib.blake2b(plain.numpy().data, digest_size=16).hexdigest()


def _cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _device_state(device: torch.device) -> torch.Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None
