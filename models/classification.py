"""The built-in task: classification into one of several classes."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from distrain.models.data import Data
from distrain.models.task import Sums, Task


class Classification(Task):
    """Cross entropy on (inputs, labels) batches; evaluated by loss, top-1 and top-5.

    `label_smoothing` applies to the training loss only. `model` returns logits, one row per
    input.
    """

    best = "top1"
    best_is: Literal["max", "min"] = "max"

    def __init__(self, model: nn.Module, data: Data, label_smoothing: float = 0.0) -> None:
        self.model = model
        self.train = data.train
        self.eval = data.eval
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
    """Return how many classes are ranked before the label: 0 is a top-1 hit.

    `logits` are N × C, `labels` and the result N. Among equal logits the lower class is ranked
    first, whatever the batch or the device, unlike with `topk`. In a row with NaN the label is
    ranked after all C classes, and at least after five.
    """
    label_logits = logits.gather(1, labels[:, None])
    is_lower = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    is_before = (logits > label_logits) | ((logits == label_logits) & is_lower)
    last = max(5, logits.shape[1])
    return is_before.sum(1).masked_fill(logits.isnan().any(1), last)
