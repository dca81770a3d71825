"""Writes, from within a real run, what verification compares.

Of each compared step this is the state that it starts from (weights, buffers, optimizer, random
numbers), the gradients as they reach the optimizer, and the state after it. Of every step it is
digests of weights and optimizer before and after the update. Attached to a rank's training, the
tap sets the sizes of the steps and hooks into the optimizer. Everything else is the run's own:
launcher, strategy, precision and loop.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from distrain.runners.training import checkpoint
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.random_state import get_random_state
from distrain.runners.training.tap_files import (
    FIRST_STEPS,
    FOLDER,
    digests_file,
    evaluated_file,
    tap_file,
    weights_file,
)
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


def epoch_sizes(
    samples: int, batch_size: int, parts: int, drop_last: bool, steps: int
) -> list[tuple[int, ...]]:
    """Return the samples of each verified step, by epoch; `parts` are the micro-batches of all
    ranks.

    The first step gives all parts equally many samples, the second has one sample more. The
    third has as many samples as the last step of an epoch if that is fewer than `parts`; otherwise
    one fewer than the first, or as many if there is a single part. Then the sizes repeat.
    """
    even = 4 * parts
    last = 0 if drop_last else samples % batch_size
    if 0 < last < parts:
        scarce = last
    elif parts > 1:
        scarce = even - 1
    else:
        scarce = even
    most = max(1, samples // FIRST_STEPS)
    cycle = [min(size, most) for size in (even, even + 1, scarce)]
    epochs: list[tuple[int, ...]] = [()]
    for step in range(steps):
        size = cycle[step % len(cycle)]
        if epochs[-1] and sum(epochs[-1]) + size > samples:
            epochs.append(())
        epochs[-1] += (size,)
    return epochs


def attach(training: Training, folder: Path, steps: Sequence[int]) -> None:
    """Set the steps of a rank's training, and write what they compute into the run's folder.

    `steps` are those to compare; the last one is the last of the run.
    """
    _Tap(training, folder / FOLDER, steps)


class _Tap:
    def __init__(self, training: Training, folder: Path, steps: Sequence[int]) -> None:
        self._training = training
        self._folder = folder
        self._compared = set(steps)
        self._step = 0
        self._before: dict[str, Any] = {}
        folder.mkdir(exist_ok=True)
        train = training.config.train
        world = training.world
        epochs = epoch_sizes(
            training.epochs.samples,
            train.batch_size,
            world.size * train.accumulate,
            train.drop_last,
            max(steps),
        )
        plans = [
            FixedBatchPlan(
                training.epochs.samples,
                train.batch_size,
                world.size,
                accumulate=train.accumulate,
                sizes=sizes,
            )
            for sizes in epochs
        ]
        training.batch_plan = lambda: plans[min(training.epoch, len(plans) - 1)]  # type: ignore[method-assign]
        self._step_of_precision = training.precision.step
        training.precision.step = self._make_step  # type: ignore[method-assign]
        training.optimizer.register_step_pre_hook(self._before_update)
        self._model_to_evaluate = training.model_to_evaluate
        training.model_to_evaluate = self._note_evaluated  # type: ignore[method-assign]
        self._write(epochs=epochs, steps=list(steps), **self._state())

    def _make_step(
        self, optimizer: Optimizer, parameters: list[torch.nn.Parameter], clip_norm: float | None
    ) -> torch.Tensor | None:
        """Make the step that the training loop makes, and write what it has changed.

        An optimizer without fused kernels is not called if fp16 skips the step.
        """
        digests = self._digest_state()
        self._facts = {
            "skipped": True,
            "rates": _rates(optimizer),
            "precision": self._training.precision.state_dict(),
        }
        result = self._step_of_precision(optimizer, parameters, clip_norm)
        self._step += 1
        with digests_file(self._folder, self._training.world.rank).open("a") as file:
            print(self._step, *digests, *self._digest_state(), self._digest_model(), file=file)
        is_compared = self._step in self._compared
        state = self._state() if is_compared or self._step + 1 in self._compared else {}
        if is_compared:
            self._write(before=self._before, **self._facts, **state)
        if self._training.average and self._training.world.is_leader:
            self._write_weights()
        self._before = {} if is_compared else state  # the file of a compared step has it
        return result

    def _note_evaluated(self) -> torch.nn.Module:
        """Return the module to evaluate, and write digests of its weights and buffers."""
        model = self._model_to_evaluate()
        file = evaluated_file(self._folder, self._training.world.rank)
        file.write_text(f"{digest(*model.parameters())} {digest(*model.buffers())}")
        return model

    def _write_weights(self) -> None:
        """Write what is averaged after this step."""
        model = self._training.model
        content = {
            "weights": copy_to_cpu(model.named_parameters()),
            "buffers": copy_to_cpu(model.named_buffers()),
            "frozen": list(self._training.frozen),
            "skipped": self._facts["skipped"],
        }
        with weights_file(self._folder, self._step).open("wb") as file:
            checkpoint.write(file, content)

    def _before_update(self, optimizer: Optimizer, *_: Any) -> None:
        found_inf = getattr(optimizer, "found_inf", None)
        self._facts["skipped"] = found_inf is not None and float(found_inf) > 0
        self._facts["rates"] = _rates(optimizer)
        if self._step + 1 in self._compared:
            parameters = self._training.model.named_parameters()
            gradients = copy_to_cpu(
                (name, each.grad) for name, each in parameters if each.grad is not None
            )
            self._facts["gradients"] = self._shortened(gradients)

    def _state(self) -> dict[str, Any]:
        """Return all that the next step depends on; digests of what is the same on all ranks."""
        training = self._training
        is_leader = training.world.is_leader
        return {
            "weights": self._shortened(copy_to_cpu(training.model.named_parameters())),
            "buffers": copy_to_cpu(training.model.named_buffers()),
            "optimizer": _copy_state(training.optimizer) if is_leader else {},
            "groups": _numbers_of_groups(training.optimizer) if is_leader else [],
            "random": get_random_state(training.world.device),
        }

    def _digest_state(self) -> tuple[str, str]:
        """Return digests of the weights that the optimizer has, and of its state.

        Others may change between steps: `forward` may move those of a teacher.
        """
        optimizer = self._training.optimizer
        weights = [each for group in optimizer.param_groups for each in group["params"]]
        states = optimizer.state.values()
        kept = [value for state in states for value in state.values() if torch.is_tensor(value)]
        return digest(*weights), digest(*kept)

    def _digest_model(self) -> str:
        return digest(*self._training.model.parameters())

    def _shortened(self, tensors: Tensors) -> Tensors | dict[str, str]:
        """Return the tensors on rank 0, and their digests on the other ranks."""
        if self._training.world.is_leader:
            return tensors
        return {name: digest(tensor) for name, tensor in tensors.items()}

    def _write(self, **content: Any) -> None:
        rank = self._training.world.rank
        with tap_file(self._folder, rank, self._step).open("wb") as file:
            checkpoint.write(file, content)


def digest(*tensors: torch.Tensor) -> str:
    """Return a digest of the tensors' bits; equal tensors have equal digests."""
    result = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        plain = _dense(tensor).detach().cpu().reshape(-1).contiguous().view(torch.uint8)
        result.update(plain.numpy().data)
    return result.hexdigest()


def copy_to_cpu(tensors: Iterable[tuple[str, torch.Tensor]]) -> Tensors:
    """Return dense copies of tensors by their names."""
    return {name: _dense(tensor).detach().cpu().clone() for name, tensor in tensors}


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def _copy_state(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """Return the optimizer's state by the index of the parameter.

    Some optimizers keep lists or dicts of tensors, which each step changes in place.
    """
    state: dict[int, dict[str, Any]] = tree_map_only(
        torch.Tensor, lambda each: each.detach().cpu().clone(), optimizer.state_dict()["state"]
    )
    return state


def _numbers_of_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the numbers in the optimizer's groups; some optimizers keep state there."""
    return [
        {
            name: copy.deepcopy(value)
            for name, value in group.items()
            if isinstance(value, bool | int | float | torch.Tensor)
        }
        for group in optimizer.param_groups
    ]
