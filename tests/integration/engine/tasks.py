"""Tasks and data for tests, as factories for a config."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from distrain.models.classification import Classification
from distrain.models.data import Augmented, Data
from distrain.models.datasets import digits


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
