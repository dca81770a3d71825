"""Given a model that trains, its average holds what was computed from each step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from distrain.runners.errors import ConfigError
from distrain.runners.training.average import EqualAverage, MovingAverage, WeightAverage

INFINITE = float("-inf")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 2).requires_grad_(False)
        self.register_buffer("mask", torch.tensor([0.0, INFINITE]))
        self.register_buffer("positions", torch.arange(100))
        self.register_buffer("calls", torch.zeros(()))

    def train_once(self) -> None:
        self.norm(self.body(torch.randn(8, 3)))
        self.calls = self.calls + 1  # another tensor, as in many models
        with torch.no_grad():
            for parameter in self.body.parameters():
                parameter += torch.randn_like(parameter)
            for parameter in self.norm.parameters():  # some optimizers replace the memory
                parameter.data = parameter + torch.randn_like(parameter)


def test_the_average_is_that_of_the_formula() -> None:
    model = Net()
    average = WeightAverage(model, MovingAverage(0.3))
    expected = copy.deepcopy(model.state_dict())
    for step in range(1, 6):
        model.train_once()
        average.update(step, None)
        share = 1 - min(0.3, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            is_averaged = name.startswith(("body", "norm")) and value.is_floating_point()
            mean = expected[name]
            expected[name] = mean + share * (value - mean) if is_averaged else value.clone()
    average.copy_others()
    found = average.model.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    assert (found["mask"][1], found["calls"], found["norm.num_batches_tracked"]) == (INFINITE, 5, 5)
    assert not any(each.requires_grad for each in average.model.parameters())


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_model_is_averaged() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    average = WeightAverage(model, MovingAverage(0.9))
    before = average.model.state_dict()["0.weight"].clone()
    with torch.no_grad():
        model(torch.randn(8, 3))
        for parameter in model.parameters():
            parameter += 1
    average.update(1, None)
    average.copy_others()
    found = average.model.state_dict()
    torch.testing.assert_close(found["0.weight"], before + 9 / 11)
    assert torch.equal(found["1.running_mean"], model.state_dict()["1.running_mean"])


def test_frozen_parameters_are_those_of_the_model_until_they_are_trained() -> None:
    model = Net()
    average = WeightAverage(model, MovingAverage(0.3))
    mine, own = model.frozen.weight, average.model.frozen.weight
    mine.fill_(1.0)  # as a task sets the weights of its teacher
    average.update(1, None)
    average.copy_others()
    assert torch.equal(own, mine)
    mine.requires_grad_()
    average.include(mine)
    with torch.no_grad():
        mine.fill_(2.0)
    average.update(1, None)
    average.copy_others()
    torch.testing.assert_close(own, torch.full_like(own, 2 - 3 / 12))


def test_the_equal_average_is_the_mean_of_the_weights_after_its_steps() -> None:
    model = Net()
    average = WeightAverage(model, EqualAverage(start=3, every=2))
    weights = {}
    for step in range(1, 8):
        model.train_once()
        weights[step] = model.body.weight.detach().clone()
        average.update(step, torch.tensor(float(step == 5)))  # a skipped step has weights, too
        average.copy_others()
        points = [weights[each] for each in (3, 5, 7) if each <= step] or [weights[step]]
        torch.testing.assert_close(average.model.body.weight, torch.stack(points).mean(0))


def test_a_parameter_that_was_unfrozen_has_its_average_in_a_resumed_run() -> None:
    model, resumed = Net(), Net()
    average = WeightAverage(model, MovingAverage(0.3))
    average.include(model.frozen.weight.requires_grad_())
    with torch.no_grad():
        model.frozen.weight.fill_(2.0)
    average.update(1, None)
    continued = WeightAverage(resumed, MovingAverage(0.3))
    continued.load_state(copy.deepcopy(average.state()))
    resumed.load_state_dict(model.state_dict())
    continued.copy_others()  # before the first step, which unfreezes it
    assert torch.equal(continued.model.frozen.weight, average.model.frozen.weight)
    assert torch.equal(continued.model.frozen.bias, model.frozen.bias)
    continued.include(resumed.frozen.weight.requires_grad_())
    for each in (average, continued):
        each.update(2, None)
    assert torch.equal(continued.model.frozen.weight, average.model.frozen.weight)


def test_a_skipped_step_adds_nothing() -> None:
    model = Net()
    skipping, plain = (
        WeightAverage(model, MovingAverage(0.3)),
        WeightAverage(model, MovingAverage(0.3)),
    )
    before = copy.deepcopy(skipping.model.body.weight)
    model.train_once()
    skipping.update(1, torch.tensor(1.0))
    assert torch.equal(skipping.model.body.weight, before)
    for average in (skipping, plain):
        average.restart()
        assert torch.equal(average.model.body.weight, model.body.weight)
    model.train_once()
    skipping.update(1, torch.tensor(0.0))
    plain.update(1, None)
    torch.testing.assert_close(skipping.model.body.weight, plain.model.body.weight)


@pytest.mark.parametrize("rule", [MovingAverage(0.9), EqualAverage(start=2, every=1)])
def test_an_average_continues_from_its_state(rule: MovingAverage | EqualAverage) -> None:
    model = Net()
    first, second = WeightAverage(model, rule), WeightAverage(model, rule)
    for step in (1, 2, 3):
        model.train_once()
        first.update(step, None)
    second.load_state(copy.deepcopy(first.state()))
    model.train_once()
    first.update(4, None)
    second.update(4, None)
    assert torch.equal(first.model.body.weight, second.model.body.weight)


def test_a_model_that_cannot_be_copied_is_one_sentence() -> None:
    class Uncopied(Net):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("holds a file")

    with pytest.raises(ConfigError, match=r"train.ema.*cannot be copied.*holds a file"):
        WeightAverage(Uncopied(), MovingAverage(0.9))
