"""The built-in task: one of several classes for each input."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.data import Data
from models.task import Sums, Task


class Classification(Task):
    """Cross entropy on (inputs, labels) batches; evaluated by loss, top-1 and top-5.

    `label_smoothing` is of the training loss only. `model` gives logits, one row per input.
    """

    best = "top1"
    best_is: Literal["max", "min"] = "max"

    def __init__(self, model: nn.Module, data: Data, label_smoothing: float = 0.0) -> None:
        self.model = model
        self.train, self.eval = data.train, data.eval
        self.finish = data.finish
        self.label_smoothing = label_smoothing

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        logits = model(inputs)
        return F.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        inputs, labels = batch
        logits = model(inputs).float()
        losses = F.cross_entropy(logits, labels, reduction="none")
        ranks = rank_of_label(logits, labels)
        count = len(labels)
        return {
            "loss": (losses.double().sum(), count),
            "top1": ((ranks < 1).sum(), count),
            "top5": ((ranks < 5).sum(), count),
        }


def rank_of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """How many classes come before the label's, N × C and N to N: 0 is a top-1 hit.

    Among equal logits the lower class comes first, whatever the batch or the device, unlike
    `topk`. Where a row holds NaN its label comes after all C classes, and at least after five.
    """
    own = logits.gather(1, labels[:, None])
    lower = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    before = (logits > own) | ((logits == own) & lower)
    nowhere = max(5, logits.shape[1])
    return before.sum(1).masked_fill(logits.isnan().any(1), nowhere)
