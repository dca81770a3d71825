"""Optimizers as users write them."""

from __future__ import annotations

from typing import Any

import torch


class Scaled(torch.optim.SGD):
    """Has an option that is not part of a group, and no default for it."""

    def __init__(self, params: Any, lr: float, *, factor: float, momentum: float = 0.0) -> None:
        super().__init__(params, lr=lr, momentum=momentum)
        self.factor = factor

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad *= self.factor
        super().step(closure)
