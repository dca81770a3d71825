"""The gradients of a step in the plain process, computed in each of the ways that are right."""

from __future__ import annotations

import math
from typing import Any

import torch

from distrain.runners.config.schema import RunConfig
from distrain.runners.config.toml import flatten
from distrain.runners.training.tap import Tensors, digest
from distrain.runners.verification.backward import Backward, Rounding, backward
from distrain.runners.verification.probe import Probe
from distrain.runners.verification.reference import MicroBatch, PlainProcess
from distrain.runners.verification.tolerance import relative_errors

LOSSY = {
    "ddp.comm_hook": {"fp16_compress": torch.float16, "bf16_compress": torch.bfloat16},
    "horovod.compression": {"fp16": torch.float16},
}


class ReferenceGradients:
    """Computes the gradients of a run's steps.

    `has_same_kernels`: whether the plain process runs the same kernels as a rank, which holds for a
    CPU that compiles nothing. `has_parts`: whether a step consists of several micro-batches.
    `is_repeatable`: whether the plain process can compute the gradients. `declared`: what cannot be
    equal.
    """

    def __init__(self, process: PlainProcess, probe: Probe) -> None:
        config = process.config
        self._process, self._probe = process, probe
        self._strategy = config.strategy
        self._ranks = process.plan.world_size
        self._syncs_batchnorm = config.train.sync_batchnorm
        self.has_same_kernels = process.device.type == "cpu" and not config.train.compile
        self.has_parts = (self._ranks, config.train.accumulate) != (1, 1)
        self.declared: list[str] = []
        self._dtype = self._find_dtype(flatten(config.to_dict()))
        self._last_exact = self._find_last_exact(config)
        self.is_repeatable = probe.is_repeatable
        if self._syncs_batchnorm and (config.train.accumulate > 1 or probe.draws):
            self.is_repeatable = False
            self.declared.append(
                "train.sync_batchnorm uses the statistics of all ranks, whose samples the plain "
                "process takes at once, which is something else with several micro-batches or "
                "random numbers (dropout): gradients not compared"
            )

    def _find_dtype(self, settings: dict[str, Any]) -> torch.dtype | None:
        """Return the type to which the config rounds gradients between ranks, and declare it."""
        for key, types in LOSSY.items():
            if key.startswith(f"{self._strategy}.") and settings[key] in types:
                setting = f'{key} = "{settings[key]}"'
                self.declared.append(f"gradients are rounded between ranks ({setting})")
                return types[settings[key]]
        return None

    def _find_last_exact(self, config: RunConfig) -> float:
        """Return the last step with exact gradients, and declare that later ones are not."""
        if self._strategy != "ddp" or config.ddp.comm_hook != "powerSGD":
            return math.inf
        last = config.ddp.powersgd_start
        if config.train.max_steps is not None and last >= config.train.max_steps:
            return math.inf
        self.declared.append(
            f"gradients are approximated between ranks after step {last} "
            '(ddp.comm_hook = "powerSGD"): only those of one dimension, such as of biases, are '
            "compared there"
        )
        return last

    def without_approximated(self, step: int, gradients: Tensors) -> Tensors:
        """Return the gradients of a step that are not approximated between ranks."""
        if step <= self._last_exact:
            return gradients
        return {name: tensor for name, tensor in gradients.items() if tensor.ndim < 2}

    def compute(
        self,
        earlier: list[dict[str, Any]],
        pieces: list[MicroBatch],
        whole: list[MicroBatch],
        scale: float,
        actual: Tensors,
    ) -> list[Backward]:
        """Return the gradients of the plain process, then those of variants with other rounding.

        `earlier`: the states of the ranks before the step.
        `pieces`: the micro-batches of the ranks; `whole`: the same samples at once.
        `scale`: loss scale of fp16.
        `actual`: the gradients of the run. Where the ranks may begin with one or with other
        buffers, those are taken whose gradients are closer to these.
        """
        found = [
            self._variants(earlier, own_buffers, pieces, whole, scale)
            for own_buffers in self._possible_buffers(earlier)
        ]
        return min(found, key=lambda each: _distance(actual, each[0].gradients))

    def _possible_buffers(self, earlier: list[dict[str, Any]]) -> list[list[Tensors]]:
        """Return with which buffers ranks may begin a step, where these are not those of rank 0.

        DDP sends those of rank 0 first. A strategy of the user's may.
        """
        own = [each["buffers"] for each in earlier]
        are_equal = len({digest(*buffers.values()) for buffers in own}) == 1
        if are_equal or self._strategy == "ddp":
            return [[]]
        return [own, []] if ":" in self._strategy else [own]

    def _variants(
        self,
        earlier: list[dict[str, Any]],
        own_buffers: list[Tensors],
        pieces: list[MicroBatch],
        whole: list[MicroBatch],
        scale: float,
    ) -> list[Backward]:
        """Return what `compute` does, for ranks that begin with these buffers.

        The plain process takes the parts of the ranks one after the other. Variants average means
        instead of adding up shares, weigh gradients instead of losses, and take the ranks in
        reverse. Kernels of a GPU and of torch.compile may differ from those of this process; then
        variants also start from weights that are moved by an ulp, take the samples at once, and
        compute in fp64.
        """
        weights, buffers = earlier[0]["weights"], earlier[0]["buffers"]
        states = [each["random"] for each in earlier] if self._probe.draws else []
        if self._syncs_batchnorm:
            pieces, states = whole, states[:1]

        def attempt(
            process: PlainProcess,
            parts: list[MicroBatch],
            how: Rounding = Rounding(),  # noqa: B008
            start: Tensors = weights,
        ) -> Backward:
            process.load(start, buffers)
            return backward(process, parts, how, states, scale, own_buffers)

        plain = self._process
        roundings = self._roundings()
        found = [attempt(plain, pieces, how) for how in roundings]
        if self._ranks > 1:
            reverse = sorted(pieces, key=lambda part: -part.rank)
            found.append(attempt(plain, reverse, roundings[0]))
        if not self.has_same_kernels:
            moved = {name: _move_by_ulp(tensor) for name, tensor in weights.items()}
            found.append(attempt(plain, pieces, start=moved))
            if not (self._probe.draws or self._probe.couples):
                found.append(attempt(plain, whole))
            exact = self._probe.exact
            if exact is not None and not self._probe.draws:
                doubled = [part._replace(batch=exact.convert(part.batch)) for part in pieces]
                found.append(attempt(exact, doubled))
        return found

    def _roundings(self) -> list[Rounding]:
        """Return the roundings of correct strategies; the first is that of the config."""
        size, dtype = self._ranks, self._dtype
        found = [Rounding(size if dtype else 1, gradient_dtype=dtype)]
        if size > 1:
            found.append(Rounding(divisor=size))
        if dtype is not None:
            found += [Rounding(), Rounding(gradient_dtype=dtype)]
        elif self.has_parts:
            found.append(Rounding(weighs_gradients=True))
        return found


def _distance(actual: Tensors, expected: Tensors) -> float:
    return max(relative_errors(actual, expected).values(), default=0.0)


def _move_by_ulp(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with each element moved to a neighbour, up or down at random."""
    if not tensor.is_floating_point():
        return tensor
    draw = torch.Generator().manual_seed(tensor.numel())
    up = torch.rand(tensor.shape, generator=draw) < 0.5
    return torch.nextafter(tensor, torch.where(up, math.inf, -math.inf).to(tensor.dtype))
