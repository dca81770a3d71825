"""A user's task that fails on the GPU in its 20th step: its factory gets how."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from distrain.models.classification import Classification
from distrain.models.data import Data

ENDLESS = 1 << 42  # cycles: half an hour or more


def make(model: nn.Module, data: Data, kind: str, rank: int = 0) -> Classification:
    return Faulty(model, data, kind if int(os.environ.get("RANK", "0")) == rank else "")


class Faulty(Classification):
    def __init__(self, model: nn.Module, data: Data, kind: str) -> None:
        super().__init__(model, data)
        self.kind, self.calls = kind, 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        self.calls += 1
        if self.calls == 20:
            if self.kind == "memory":
                torch.empty(1 << 42, device=inputs.device)
            elif self.kind == "label":
                labels = labels + 11
            elif self.kind == "hang":
                torch.cuda._sleep(ENDLESS)
        return super().loss(model, (inputs, labels))
