"""Tasks and data for tests, as factories for a config."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from distrain.models.classification import Classification
from distrain.models.data import Augmented, Data
from distrain.models.datasets import digits
from distrain.models.task import Sums


class HugeLoss(Classification):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * 1e4


def huge_loss(model: nn.Module, data: Data) -> HugeLoss:
    """A task whose gradients overflow in fp16 with the first loss scales."""
    return HugeLoss(model, data)


def jittered_digits(seed: int) -> Data:
    """Digits whose training images have random noise."""
    data = digits()
    return dataclasses.replace(data, train=Augmented(data.train, _jitter, seed))


def _jitter(image: Tensor) -> Tensor:
    return image + torch.randint(0, 2, image.shape, dtype=image.dtype)


class Turning(Classification):
    """A task of two optimizers, with a schedule of its own."""

    def __init__(self, model: nn.Module, data: Data) -> None:
        super().__init__(model, data)

    def optimizer(self, model: nn.Module) -> Any:
        first, *rest = model.parameters()
        return {
            "first": torch.optim.SGD([first], lr=0.02, momentum=0.9),
            "rest": torch.optim.Adam(rest, lr=0.002),
        }

    def schedule(self, step: int, total_steps: int) -> float:
        return 0.9**step


class Restless(Classification):
    """A task whose evaluation draws random numbers, opens something and updates a buffer."""

    def __init__(self, data: Data) -> None:
        frozen = nn.BatchNorm1d(64).eval()
        super().__init__(Counting(nn.Flatten(), frozen, nn.Dropout(), nn.Linear(64, 10)), data)
        self.eval = _Noisy(data.eval)

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        torch.rand(1), random.random(), np.random.rand()
        return super().metrics(model, batch)


class Counting(nn.Sequential):
    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        self.calls = self.calls + 1
        logits: Tensor = super().forward(images) + self.calls / 100
        return logits


class _Noisy(Dataset[Any]):
    def __init__(self, data: Dataset[Any]) -> None:
        self.data = data
        self.opened = 0

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        self.opened += 1
        image, label = self.data[index]
        return image + torch.rand(()) + self.opened, label
