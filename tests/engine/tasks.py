"""Tasks and data that behave as tests need them, each a factory for a config."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from models.classification import Classification
from models.data import Augmented, Data
from models.datasets import digits


class HugeLoss(Classification):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * 1e4


def huge_loss(model: nn.Module, data: Data) -> HugeLoss:
    """Gradients that overflow fp16 under the first loss scales."""
    return HugeLoss(model, data)


def jittered_digits(seed: int) -> Data:
    """Digits with random noise on every training image."""
    data = digits()
    return dataclasses.replace(data, train=Augmented(data.train, _jitter, seed))


def _jitter(image: Tensor) -> Tensor:
    return image + torch.randint(0, 2, image.shape, dtype=image.dtype)
