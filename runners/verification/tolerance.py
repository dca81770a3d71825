"""How far apart two tensors may be: a multiple of the rounding error that is measured for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from statistics import median

import torch

from distrain.runners.training.tap import Tensors

FACTOR = 10.0  # limit of a tensor, as a multiple of its measured rounding error
FLOOR = 16 * torch.finfo(torch.float32).eps  # added to each limit
TOLERANCE = (
    f"{FACTOR:g} × the difference between two plain processes that differ only in rounding, "
    "measured for each tensor"
)

ErrorScale = Callable[[str, Tensors], float]
"""Returns the norm of which the error of the named tensor is a fraction."""


class Limits:
    """Limits of relative errors, from plain processes that differ only in rounding."""

    def __init__(self) -> None:
        self._noise: dict[tuple[str, str], float] = {}  # by what is compared, and tensor

    def update(
        self, what: str, expected: Tensors, variants: list[Tensors], scale: ErrorScale
    ) -> dict[str, float]:
        """Measure the rounding errors of a step, and return the limit of each tensor.

        The rounding error of a tensor is the largest in any step so far, and not less than the
        median over all tensors.
        """
        for name, variant in product(expected, variants):
            error = relative_error(variant, expected, name, scale)
            if math.isfinite(error):
                self._noise[what, name] = max(error, self._noise.get((what, name), 0.0))
        noise = {name: self._noise.get((what, name), 0.0) for name in expected}
        typical = median(noise.values())
        return {name: FACTOR * max(noise[name], typical) + FLOOR for name in noise}


def relative_error(actual: Tensors, expected: Tensors, name: str, scale: ErrorScale) -> float:
    """Return the relative error of a tensor; a missing tensor counts as zero."""
    tensor = actual.get(name, torch.zeros_like(expected[name]))
    error = distance(tensor, expected[name])
    size = scale(name, expected)
    if size:
        return error / size
    return 0.0 if error == 0 else math.inf


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm())


def norm(name: str, tensors: Tensors) -> float:
    """Return the norm of a tensor: the scale of gradients and buffers."""
    return float(tensors[name].double().norm())
