"""Given metric objects of several batches or ranks, their states are merged exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from distrain.models.errors import TaskError
from distrain.models.metric_state import (
    compute,
    is_metric_state,
    merge_states,
    read_state,
)


class Spread:
    """The range and the median of values, and how many there are."""

    reductions = {"least": "min", "most": "max", "count": "sum", "values": "cat", "seen": "list"}  # noqa: RUF012

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.least, self.most = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self.values, self.count = torch.zeros(0), 0
        self.seen: list[Tensor] = []

    def update(self, values: Tensor) -> None:
        self.least = torch.minimum(self.least, values.min())
        self.most = torch.maximum(self.most, values.max())
        self.values = torch.cat([self.values, values])
        self.count += len(values)
        self.seen.append(values)

    def compute(self) -> dict[str, Any]:
        return {
            "range": self.most - self.least,
            "median": self.values.median(),
            "count": self.count,
            "all": torch.cat(self.seen),
        }


def test_unequal_parts_are_merged_to_the_state_of_the_whole() -> None:
    values = torch.randn(10, generator=torch.Generator().manual_seed(0))
    states = []
    for part in values.split([1, 7, 2]):
        spread = Spread()
        spread.update(part)
        states.append(read_state(spread))
    merged = Spread()
    assert compute("x", merged, states) == {
        "x_range": float(values.max() - values.min()),
        "x_median": float(values.median()),
        "x_count": 10.0,
    }
    assert torch.equal(torch.cat(merged.seen), values)


def test_a_copy_of_a_state_does_not_change_with_the_metric() -> None:
    spread = Spread()
    spread.update(torch.ones(2))
    state = read_state(spread)
    spread.values += 1
    spread.seen.append(torch.zeros(1))
    assert torch.equal(state["", "values"], torch.ones(2))
    assert len(state["", "seen"]) == 1


def test_sums_in_fp32_do_not_depend_on_how_many_are_added() -> None:
    class Total:
        reductions = {"total": "sum"}  # noqa: RUF012
        total = torch.tensor(1.0)

        def reset(self) -> None: ...
        def compute(self) -> Tensor:
            return self.total

    metric = Total()
    states = [{("", "total"): torch.tensor(x)} for x in [2.0**24, *[1.0] * 4]]
    assert float(merge_states(metric, states)["", "total"]) == 2**24 + 4


@pytest.mark.parametrize(
    ("reductions", "result", "problem"),
    [
        ({"hits": "mean"}, 1.0, 'must be "sum", "cat", "max" or "min", not \'mean\''),
        ({"missing": "sum"}, 1.0, "has no attribute missing, which its reductions name"),
        ({}, 1.0, "has no state that can be merged between ranks"),
        ({"hits": "sum"}, torch.ones(3), "not a tensor of shape [3]"),
        ({"hits": "sum"}, {"each": torch.ones(3)}, "must return a number or a dict of numbers"),
    ],
)
def test_what_cannot_be_merged_or_computed_is_one_sentence(
    reductions: dict[str, str], result: Any, problem: str
) -> None:
    class Wrong:
        hits = torch.ones(())

        def __init__(self) -> None:
            self.reductions = reductions

        def reset(self) -> None: ...
        def compute(self) -> Any:
            return result

    metric = Wrong()
    assert is_metric_state(metric)
    with pytest.raises(TaskError) as caught:
        compute("wrong", metric, [read_state(each) for each in (metric, metric)])
    assert problem in str(caught.value)


def test_a_pair_of_sum_and_count_is_no_metric_object() -> None:
    assert not is_metric_state((1.0, 2))
    assert not is_metric_state(torch.ones(()))
