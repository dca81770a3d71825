"""Models for Horovod to broadcast and reduce."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def all_types(**_: Any) -> nn.Module:
    """Return a linear model, with tensors of types that Horovod cannot send."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model.register_buffer("mask", torch.tensor([True, False]))
    model.register_buffer("narrow", torch.rand(3, dtype=torch.bfloat16))
    model.register_buffer("unsaved", torch.tensor(True), persistent=False)
    model.register_parameter("frozen", nn.Parameter(torch.rand(2).bfloat16(), requires_grad=False))
    return model
