"""Tensors, modules, batches and tasks in fp64; complex numbers in two of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, complex128, float64, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in fp64, or complex128."""
    return tensor.to(complex128 if tensor.is_complex() else float64)


def widen_module(module: nn.Module) -> None:
    """Widen all parameters and buffers but whole numbers, in place."""
    module._apply(_widen_fractions)


def widen_batch(batch: Any) -> Any:
    """Return the batch with all tensors widened but those of whole numbers."""
    return tree_map(lambda each: _widen_fractions(each) if torch.is_tensor(each) else each, batch)


def _widen_fractions(tensor: Tensor) -> Tensor:
    return widen(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


@contextmanager
def in_double() -> Iterator[None]:
    """Let a task compute in fp64 where it makes tensors, or converts them to fp32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _FloatIsDouble():
            yield
    finally:
        torch.set_default_dtype(before)


class _FloatIsDouble(TorchFunctionMode):
    """Within it, `float()` of a tensor is `double()`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function = torch.Tensor.double if func is torch.Tensor.float else func
        return function(*args, **(kwargs or {}))
