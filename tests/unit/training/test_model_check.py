"""Ranks with different networks are found before they share their weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distrain.models.errors import TaskError
from distrain.runners.training.model_check import require_same_model


def check(of_rank: nn.Module, of_leader: nn.Module) -> None:
    """Check the network of rank 2 with that of rank 0."""
    sent: list[Tensor] = []

    def world(rank: int, broadcast: Any) -> Any:
        return SimpleNamespace(rank=rank, size=4, device=torch.device("cpu"), broadcast_=broadcast)

    require_same_model(world(0, sent.append), of_leader)
    require_same_model(world(2, lambda tensor: tensor.copy_(sent[0])), of_rank)


def frozen() -> nn.Module:
    return nn.Linear(4, 2).requires_grad_(False)


@pytest.mark.parametrize(
    ("of_rank", "sentence"),
    [
        (nn.Linear(4, 3), "of class Linear, has 15 parameters on rank 2 and 10 on rank 0"),
        (nn.Linear(9, 1), "has other parameters or buffers on rank 2 than on rank 0"),
        (frozen(), "has other parameters or buffers on rank 2"),
    ],
)
def test_another_network_on_another_rank_is_named(of_rank: nn.Module, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        check(of_rank, nn.Linear(4, 2))


def test_other_weights_are_no_other_network() -> None:
    check(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    check(nn.Linear(4, 2), nn.Linear(4, 2))
