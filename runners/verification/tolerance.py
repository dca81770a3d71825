"""How far apart gradients may be: a multiple of the rounding error that is measured for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import torch

from distrain.runners.training.tap import Tensors
from distrain.runners.verification.wide import widen

EPS = torch.finfo(torch.float32).eps
FACTOR = 10.0  # limit of a tensor, as a multiple of its measured rounding error
CPU_FACTOR = 4.0  # the same where a rank and the plain process run the same kernels
FLOOR = 8 * EPS  # added to each limit
TOLERANCE = (
    f"for gradients and buffers, {CPU_FACTOR:g} × the difference between plain processes that "
    f"differ only in rounding, measured for each tensor ({FACTOR:g} × on GPUs and with "
    "torch.compile); for weights, 16 roundings of each element (and on GPUs 8 of Adam's betas)"
)


class Limits:
    """Limits of relative errors, from plain processes that differ only in rounding."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._noise: dict[tuple[str, str], float] = {}  # by what is compared, and tensor

    def update(self, what: str, expected: Tensors, variants: Sequence[Tensors]) -> dict[str, float]:
        """Measure the rounding errors of a step, and return the limit of each tensor.

        The rounding error of a tensor is the largest in any step so far, and not less than the
        median over all tensors.
        """
        for variant in variants:
            for name, error in relative_errors(variant, expected).items():
                if math.isfinite(error):
                    self._noise[what, name] = max(error, self._noise.get((what, name), 0.0))
        noise = {name: self._noise.get((what, name), 0.0) for name in expected}
        typical = median(noise.values()) if noise else 0.0
        return {name: self._factor * max(noise[name], typical) + FLOOR for name in noise}


def relative_errors(actual: Tensors, expected: Tensors) -> dict[str, float]:
    """Return the error of each tensor relative to its norm; a missing tensor counts as zero.

    A tensor that is zero but for rounding (the gradient of a bias before BatchNorm, or of the keys
    of an attention) has a norm that says nothing. So the rounding error of the sum of all tensors
    is added to the norm.
    """
    least = EPS * total_norm(expected)
    errors = {}
    for name in expected | actual:
        shape = (expected if name in expected else actual)[name]
        zero = torch.zeros_like(shape, dtype=torch.float64)
        size = float(widen(expected.get(name, zero)).norm()) + least
        error = float((widen(actual.get(name, zero)) - widen(expected.get(name, zero))).norm())
        errors[name] = error / size if size else 0.0 if error == 0 else math.inf
    return errors


def total_norm(tensors: Mapping[str, torch.Tensor]) -> float:
    """Return the norm of all tensors together."""
    return math.hypot(*(float(widen(tensor).norm()) for tensor in tensors.values()))
