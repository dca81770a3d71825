"""Optimizers of a task take the place of those of the config, or give them groups."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from distrain.models.errors import TaskError
from distrain.models.task import Task
from distrain.runners.config.plan import Plan
from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.strategies.allreduce import _gradient_of
from distrain.runners.training.optim import set_rate
from distrain.runners.training.precision import Precision
from distrain.runners.training.task_optimizer import (
    base_rate,
    make_optimizer,
    make_rate,
    option_names,
)
from distrain.runners.training.turns import Turns


class Grouped(Task):
    """A task with the hooks that are its keyword arguments."""

    def __init__(self, groups: Any = None, optimizer: Any = None) -> None:
        self.model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
        self._groups = groups
        self._optimizer = optimizer

    def parameter_groups(self, model: nn.Module) -> Any:
        return self._groups and self._groups(model)

    def optimizer(self, model: nn.Module) -> Any:
        return self._optimizer and self._optimizer(model)

    def loss(self, model: nn.Module, batch: Any) -> Any: ...
    def metrics(self, model: nn.Module, batch: Any) -> Any: ...


def halves(model: nn.Module) -> list[dict[str, Any]]:
    linear, norm = model.children()
    return [
        {"params": linear.parameters(), "lr_scale": 0.5},
        {"params": norm.parameters(), "weight_decay": 0.0, "lr": 0.3},
    ]


def test_groups_of_the_task_keep_their_own_options_and_their_share_of_the_rate() -> None:
    train = TrainConfig(
        optimizer="torch.optim:RMSprop",
        optimizer_args={"alpha": 0.5},
        lr=0.1,
        momentum=0.9,
        weight_decay=0.2,
    )
    task = Grouped(halves)
    optimizer, own_rate = make_optimizer(train, task, task.model)
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert own_rate is None
    set_rate(optimizer, 0.2)
    first, second = optimizer.param_groups
    assert (first["weight_decay"], second["weight_decay"], first["alpha"]) == (0.2, 0.0, 0.5)
    assert first["momentum"] == 0  # train.momentum is that of SGD
    assert [first["lr"], second["lr"]] == pytest.approx([0.1, 0.6])


def test_numbers_of_numpy_in_groups_become_plain_ones_which_a_checkpoint_may_have() -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        decay, betas = np.float64(0.5), (np.float64(0.5), 0.9)
        return torch.optim.AdamW(model.parameters(), np.float64(0.25), betas, weight_decay=decay)

    task = Grouped(optimizer=make)
    optimizer, own_rate = make_optimizer(TrainConfig(), task, task.model)
    (group,) = optimizer.param_groups
    found = [own_rate, group["lr"], group["weight_decay"], *group["betas"]]
    assert found == [0.25, 0.25, 0.5, 0.5, 0.9]
    assert {*map(type, found)} == {float}


class Rateless(torch.optim.SGD):
    """An optimizer that has no learning rate of its own, as Adafactor with relative steps."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        for group in self.param_groups:
            group["lr"] = None


def a_frozen_group(model: nn.Module) -> torch.optim.Optimizer:
    linear, norm = model.children()
    groups = [{"params": linear.parameters(), "lr": 0.0}, {"params": norm.parameters(), "lr": 0.2}]
    return torch.optim.SGD(groups)


def test_a_group_with_a_rate_of_zero_stays_at_zero_and_the_next_one_gives_the_rate() -> None:
    train = TrainConfig(lr=0.1)
    task = Grouped(optimizer=a_frozen_group)
    optimizer, own_rate = make_optimizer(train, task, task.model)
    plan = Plan(world_size=4, devices=[], threads=1, backend="gloo", lr=4 * train.lr)
    rate = base_rate(train, plan, own_rate)
    set_rate(optimizer, rate)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.0, 0.8])
    assert base_rate(train, plan, None) == plan.lr


@dataclass(frozen=True)
class Frozen(Grouped):
    model: nn.Module  # type: ignore[misc]

    def optimizer(self, model: nn.Module) -> Any:
        return {"only": torch.optim.SGD(model.parameters(), lr=0.1), "other": _other(model)}


def _other(model: nn.Module) -> torch.optim.Optimizer:
    extra = nn.Parameter(torch.zeros(1))
    model.register_parameter("extra", extra)
    return torch.optim.SGD([extra], lr=0.1)


def test_a_frozen_task_can_have_optimizers_in_turn() -> None:
    task = Frozen(nn.Linear(3, 2))
    make_optimizer(TrainConfig(), task, task.model)
    assert task.turn == "only"


def test_optimizers_in_turn_share_groups_and_state_also_after_a_restoration() -> None:
    def both(model: nn.Module) -> Any:
        linear, norm = model.children()
        return {
            "first": torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9),
            "second": torch.optim.Adam(norm.parameters(), lr=0.4),
        }

    def steps(optimizer: Any, model: nn.Module, numbers: range) -> None:
        for number in numbers:
            assert optimizer.begin(number) == ("first", "second")[number % 2]
            set_rate(optimizer, 0.05)
            for index, parameter in enumerate(model.parameters()):
                parameter.grad = torch.full_like(parameter, index + number)
            optimizer.step()

    task = Grouped(optimizer=both)
    optimizer, own_rate = make_optimizer(TrainConfig(), task, task.model)
    assert (own_rate, task.turn) == (0.1, "first")
    steps(optimizer, task.model, range(4))
    resumed = Grouped(optimizer=both)
    resumed.model.load_state_dict(task.model.state_dict())
    other, _ = make_optimizer(TrainConfig(), resumed, resumed.model)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each in (optimizer, other):
        assert len(each.state) == 4
    steps(optimizer, task.model, range(4, 7))
    steps(other, resumed.model, range(4, 7))
    assert [group["lr"] for group in other.param_groups] == pytest.approx([0.05, 0.2])
    for name, tensor in task.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor)


def test_an_overflow_in_the_gradients_of_another_turn_skips_no_step() -> None:
    task = Grouped(
        optimizer=lambda model: {
            str(index): torch.optim.SGD(each.parameters(), lr=0.1)
            for index, each in enumerate(model)
        }
    )
    optimizer, _ = make_optimizer(TrainConfig(), task, task.model)
    assert isinstance(optimizer, Turns)
    precision = Precision("fp16", torch.device("cpu"))
    precision.scale_loss(torch.ones(1))  # makes the scale
    for parameter in task.model.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    for parameter in optimizer.parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.remove_other_gradients()
    assert precision.step(optimizer, optimizer.parameters, None) == 0


class Counting(torch.optim.SGD):
    """Keeps a number of its training in its groups, as schedule-free optimizers do."""

    def __init__(self, params: Any, factor: float = 1.0) -> None:
        super().__init__(params)
        for group in self.param_groups:
            group |= {"count": 0, "factor": factor}


def test_options_of_a_group_are_the_arguments_of_the_class() -> None:
    optimizer = Counting([nn.Parameter(torch.ones(1))])
    names = option_names(optimizer) & optimizer.param_groups[0].keys()
    assert names >= {"lr", "momentum", "factor"}
    assert not names & {"count", "params"}


def test_a_schedule_that_is_an_attribute_is_the_schedule() -> None:
    task = Grouped()
    task.schedule = lambda step, total_steps: step / total_steps  # type: ignore[method-assign]
    assert make_rate(TrainConfig(), task, 0.5, 10, 4)(2) == 0.25


@pytest.mark.parametrize(
    ("factor", "found"),
    [
        (lambda step: 1 - step / 2, "-0.5 for step 3"),
        (lambda step: 1 if step < 3 else math.nan, "nan for step 3"),
        (lambda step: None, "None for step 0"),
    ],
)
def test_a_schedule_that_gives_no_rate_is_named(factor: Any, found: str) -> None:
    task = Grouped()
    task.schedule = lambda step, total_steps: factor(step)  # type: ignore[method-assign]
    with pytest.raises(TaskError, match=rf"a number >= 0, but it returned {found}"):
        make_rate(TrainConfig(), task, 0.5, 10, 4)(3)


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ({"groups": lambda model: halves(model)[:1]}, "leaves out 2 parameters (1.weight, 1.bias)"),
        ({"groups": lambda model: [model]}, 'must return a list of dicts with "params"'),
        (
            {"optimizer": lambda model: [torch.optim.SGD(model.parameters())]},
            "returned a list: return an optimizer, or a dict of several that take turns",
        ),
        ({"optimizer": lambda model: model}, "returned a Sequential, not a torch.optim.Optimizer"),
        (
            {"optimizer": lambda model: torch.optim.LBFGS(model.parameters())},
            "LBFGS evaluates the loss several times",
        ),
        (
            {"optimizer": lambda _: torch.optim.SGD(nn.Linear(2, 2).parameters())},
            "has parameters that are not those of the `model`",
        ),
        (
            {"optimizer": lambda model: Rateless(model.parameters())},
            "must give each group of parameters a learning rate",
        ),
        (
            {"optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.0)},
            "must give at least one group a learning rate above 0",
        ),
    ],
)
def test_a_wrong_optimizer_is_refused_with_its_place(hooks: dict[str, Any], sentence: str) -> None:
    task = Grouped(**hooks)
    with pytest.raises(TaskError) as caught:
        make_optimizer(TrainConfig(), task, task.model)
    assert sentence in str(caught.value)


def test_a_builtin_optimizer_refuses_sparse_gradients_and_another_gets_them() -> None:
    task = Grouped()
    task.model = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Linear(3, 1))
    with pytest.raises(TaskError, match="adam takes no sparse gradients, which 0 of the model has"):
        make_optimizer(TrainConfig(optimizer="adam"), task, task.model)
    optimizer, _ = make_optimizer(TrainConfig(optimizer="torch.optim:SGD"), task, task.model)
    assert len(optimizer.param_groups[0]["params"]) == 3
    task.model[0].requires_grad_(False)  # it has no gradients
    optimizer, _ = make_optimizer(TrainConfig(optimizer="adam"), task, task.model)
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_allreduce_refuses_sparse_gradients() -> None:
    parameter = nn.Parameter(torch.ones(3, 2))
    parameter.grad = torch.zeros(3, 2).to_sparse()
    with pytest.raises(TaskError, match="allreduce does not reduce sparse gradients"):
        _gradient_of(parameter)
