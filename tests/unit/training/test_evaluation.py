"""An evaluation names a batch whose metrics are others than those of the first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distrain.models.errors import TaskError
from distrain.models.task import Task
from distrain.runners.distributed.process_group import World
from distrain.runners.training.evaluation import evaluate
from distrain.runners.training.precision import Precision

CPU = torch.device("cpu")


class Echo(Task):
    """A task whose batches are its metrics."""

    def __init__(self) -> None:
        self.model = nn.Identity()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise NotImplementedError

    def metrics(self, model: nn.Module, batch: Any) -> Any:
        return batch


def run(*batches: Any) -> dict[str, Any]:
    task = Echo()
    sized = [(batch, 2) for batch in batches]
    _, metrics = evaluate(task, task.model, sized, Precision("fp32", CPU), World(0, 0, 1, CPU))
    return {name: metric.value for name, metric in metrics.items()}


def test_sums_of_any_kind_of_number_are_added() -> None:
    assert run({"a": (1, 2)}, {"a": [torch.tensor(2.0), torch.tensor(1)]}) == {"a": 1.0}


@pytest.mark.parametrize(
    ("kind", "largest"),
    [(torch.bfloat16, 2**8), (torch.float16, 2**11), (torch.float32, 2**24), (torch.int8, 127)],
)
def test_counts_are_added_exactly_whatever_their_type(kind: torch.dtype, largest: int) -> None:
    first = (largest, torch.tensor(largest, dtype=kind))
    assert run({"a": first}, {"a": (1, torch.tensor(1, dtype=kind))}) == {"a": 1.0}


@pytest.mark.parametrize(
    ("later", "sentence"),
    [
        ({"a": torch.tensor(0.5)}, "but a is a single number: return its sum and its count"),
        ({"a": (torch.ones(2), 2)}, r"the sum of a must be a number, but .* tensor of shape \[2\]"),
        ({"a": (1, None)}, "the count of a must be a number, but .* returned None"),
        ({"b": (1, 2)}, "returned other names for other samples"),
        ({"a": (1, 2), "b": (1, 2)}, "returned other names for other samples"),
    ],
)
def test_a_later_batch_with_other_metrics_is_named(later: Any, sentence: str) -> None:
    with pytest.raises(
        TaskError, match=rf"metrics\(\) in .*test_evaluation.py.*{sentence}|{sentence}"
    ):
        run({"a": (1, 2)}, later)


def test_a_later_batch_with_the_first_sums_is_named() -> None:
    with pytest.raises(TaskError, match="returned other names for other samples"):
        run({}, {"a": (1, 2)})
