"""Tensors and modules in fp64, complex ones in two of them."""

from __future__ import annotations

from torch import Tensor, complex128, float64, nn


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in fp64, or complex128."""
    return tensor.to(complex128 if tensor.is_complex() else float64)


def widen_module(module: nn.Module) -> None:
    """Widen all parameters and buffers but whole numbers, in place."""
    module._apply(
        lambda each: widen(each) if each.is_floating_point() or each.is_complex() else each
    )
