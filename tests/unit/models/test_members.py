"""What is wrong with a member of a task is one sentence, whatever its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from distrain.models.errors import TaskError
from distrain.models.members import require_members
from distrain.models.task import Sums, Task

DATA = TensorDataset(torch.zeros(4, 2))


class Plain(Task):
    model = nn.Linear(2, 1)
    train = eval = DATA

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        raise NotImplementedError

    def metrics(self, model: nn.Module, batch: Any) -> Sums:
        raise NotImplementedError


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 4


class WithoutLength(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return index

    def __len__(self) -> int:
        raise NotImplementedError


def broken(_: Task) -> float:
    raise RuntimeError("no tokenizer")


@pytest.mark.parametrize(
    ("member", "value", "sentence"),
    [
        ("items_per_sample", float("nan"), "must be a number > 0, not nan"),
        ("items_per_sample", -3, "must be a number > 0, not -3"),
        ("items_per_sample", 10**400, "must be a number > 0, not inf"),
        ("items_per_sample", "many", "must be a number > 0, not 'many'"),
        ("items_per_sample", torch.ones(2), "must be a number > 0, not a tensor of shape [2]"),
        ("items_per_sample", property(broken), "raised RuntimeError: no tokenizer"),
        ("flops_per_sample", -1.0, "must be a number >= 0, not -1"),
        ("flops_per_sample", 1j, "must be a number >= 0, not a complex"),
        ("item", "\x1b[31mtoken", "printable characters, such as \"token\", not '\\x1b[31mtoken'"),
        ("item", "", "printable characters"),
        ("item", None, "not None"),
        ("best", 3, "must be the name of a metric, not 3"),
        ("best_is", "biggest", 'must be "max" or "min", not \'biggest\''),
        ("derived", None, "must be a function, not None"),
        ("collate", 3, "must be a function, not a single number"),
        (
            "optimizer",
            torch.optim.Adam(Plain.model.parameters()),
            "must be a method optimizer(model), not an Adam",
        ),
        ("parameter_groups", [], "must be a method parameter_groups(model), not a list"),
        ("schedule", None, "must be a method schedule(step, total_steps), not None"),
        ("weight", 0.5, "must be a method weight(batch), not a single number"),
        ("model", "net", "must be a torch.nn.Module, not a str"),
        ("model", nn.LazyLinear(2), "has no size for weight yet: call it once"),
        (
            "model",
            nn.DataParallel(nn.Linear(2, 1)),
            "is a DataParallel: return the module in it",
        ),
        ("train", DataLoader(DATA), "is a DataLoader, whose samples have no numbers"),
        ("train", iter(()), "is a tuple_iterator, which can be iterated only once"),
        ("train", WithoutLength(), "gives no length: it must be a map-style data set, with"),
        ("eval", Endless(), "is an Endless, whose samples have no numbers: it must be a map-style"),
        ("eval", object(), "has no length: it must be a map-style data set"),
    ],
)
def test_a_member_that_cannot_be_used_is_named(member: str, value: Any, sentence: str) -> None:
    task = type("Changed", (Plain,), {member: value})()
    with pytest.raises(TaskError) as raised:
        require_members("tasks:make", task)
    assert f"`{member}` of tasks:make " in str(raised.value)
    assert sentence in str(raised.value)


def test_members_that_can_be_used_are_accepted() -> None:
    members = {"item": "word", "items_per_sample": 1.5, "flops_per_sample": 10**12, "collate": None}
    require_members("tasks:make", type("Streaming", (Plain,), {"train": Endless()})())
    require_members("tasks:make", type("Changed", (Plain,), members)())


@pytest.mark.parametrize(
    ("member", "function", "called"),
    [
        ("schedule", lambda step: 1.0, r"\(step, total_steps\)"),
        ("loss", lambda batch: None, r"\(model, batch\)"),
        ("derived", lambda means, more: {}, r"\(means\)"),
    ],
)
def test_a_method_with_other_arguments_is_named_with_its_place(
    member: str, function: Callable[..., Any], called: str
) -> None:
    task = type("Own", (Plain,), {member: staticmethod(function)})()
    with pytest.raises(TaskError, match=rf"`{member}` of net:Own is called with {called}, which"):
        require_members("net:Own", task)
