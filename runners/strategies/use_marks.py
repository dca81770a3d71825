"""Which parameters a rank used in a step, as numbers that are reduced with the gradients.

One process leaves a parameter that the loss does not use without a gradient, so that neither its
momentum nor weight decay moves it. All ranks must do so for those that no rank used, and must send
zeros for those that only others used. A rank that used all of them never reads the marks, which
would wait for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class UseMarks:
    """A mark for each parameter, 1 if its gradient exists; made before zeros replace the others."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        self._own = [parameter.grad is not None for parameter in parameters]

    def tensor(self) -> torch.Tensor:
        """Return the marks of this rank, of the type and on the device of the parameters."""
        like = self._parameters[0].detach()
        if all(self._own):
            return like.new_ones(len(self._own))
        return like.new_tensor(self._own)

    def remove_unused(self, total: torch.Tensor) -> None:
        """Remove the gradients of parameters that no rank used; `total` is the sum of the marks."""
        if all(self._own):
            return
        for parameter, mark in zip(self._parameters, total.tolist(), strict=True):
            if not mark:
                parameter.grad = None
