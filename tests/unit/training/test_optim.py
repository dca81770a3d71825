"""Optimizers step as PyTorch's, and learning rates follow their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from distrain.models.errors import TaskError
from distrain.runners.config.training_sections import TrainConfig
from distrain.runners.training.optim import BUILTIN, make_schedule, optimizer_of_config
from distrain.runners.training.training_state import _restore_optimizer

LR = 0.2
PER_EPOCH = 10
TOTAL = 100  # steps


def rates(**keys: Any) -> list[float]:
    """Return the rate of each step of a run of ten epochs."""
    rate = make_schedule(TrainConfig(**keys), LR, PER_EPOCH, TOTAL)
    return [rate(step) for step in range(TOTAL)]


def test_constant_is_constant() -> None:
    assert set(rates()) == {LR}


def test_warm_up_rises_in_a_straight_line_to_the_rate() -> None:
    found = rates(warmup_epochs=2.0)
    assert found[:20] == pytest.approx([LR * (step + 1) / 20 for step in range(20)])
    assert set(found[19:]) == {LR}


def test_half_an_epoch_of_warm_up_is_half_its_steps() -> None:
    assert rates(warmup_epochs=0.5)[:6] == pytest.approx([LR * n / 5 for n in (1, 2, 3, 4, 5, 5)])


def test_cosine_falls_from_the_rate_to_almost_zero() -> None:
    found = rates(schedule="cosine")
    assert found[0] == LR
    assert found[50] == pytest.approx(LR / 2)
    assert found[25] == pytest.approx(LR * (1 + math.cos(math.pi / 4)) / 2)
    assert 0 < found[-1] < LR / 1000
    assert found == sorted(found, reverse=True)


def test_cosine_begins_where_warm_up_ends() -> None:
    found = rates(schedule="cosine", warmup_epochs=2.0)
    assert found[19] == pytest.approx(LR)
    assert found[20] == pytest.approx(LR)
    assert found[60] == pytest.approx(LR / 2)


def test_cosine_is_zero_after_its_end() -> None:
    assert make_schedule(TrainConfig(schedule="cosine"), LR, PER_EPOCH, TOTAL)(TOTAL + 50) == 0


def test_a_cosine_that_is_all_warm_up_does_not_divide_by_zero() -> None:
    rate = make_schedule(TrainConfig(schedule="cosine", warmup_epochs=10.0), LR, PER_EPOCH, TOTAL)
    assert [rate(99), rate(100)] == [LR, LR]


def test_wsd_is_constant_and_then_falls_in_a_straight_line_to_zero() -> None:
    found = rates(schedule="wsd", decay_share=0.25, warmup_epochs=1.0)
    assert found[9:76] == pytest.approx([LR] * 67)
    assert found[75:] == pytest.approx([LR * left / 25 for left in range(25, 0, -1)])


def test_one_cycle_is_that_of_pytorch() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=LR)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LR, total_steps=TOTAL, cycle_momentum=False
    )
    expected = []
    for _ in range(TOTAL):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step() if len(expected) < TOTAL else None
    assert rates(schedule="onecycle") == pytest.approx(expected)
    assert all(map(math.isfinite, [make_schedule(TrainConfig(schedule="onecycle"), LR, 1, 1)(0)]))


def test_step_falls_by_its_factor_every_step_epochs() -> None:
    found = rates(schedule="step", step_epochs=3.0, step_gamma=0.5)
    assert found[:30] == [LR] * 30
    assert found[30:60] == pytest.approx([LR / 2] * 30)
    assert found[90:] == pytest.approx([LR / 8] * 10)


def test_step_falls_at_most_once_a_step() -> None:
    found = rates(schedule="step", step_epochs=0.01, step_gamma=0.5)
    assert found[:3] == pytest.approx([LR, LR / 2, LR / 4])


@pytest.mark.parametrize(
    ("name", "args", "dtype"),
    [
        *(("sgd", {}, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)),
        ("sgd", {"dampening": 0.5}, torch.float32),
        ("sgd", {"nesterov": True}, torch.float32),
        ("sgd", {"maximize": True, "foreach": True}, torch.float32),
        ("adam", {}, torch.float32),
        ("adam", {}, torch.complex64),
        ("adam", {"amsgrad": True}, torch.float32),
        ("adamw", {"maximize": True}, torch.float32),
    ],
    ids=str,
)
def test_an_optimizer_steps_like_pytorchs_plain_one(
    name: Any, args: dict[str, Any], dtype: torch.dtype
) -> None:
    train = TrainConfig(lr=LR, optimizer=name, weight_decay=0.1, momentum=0.8, optimizer_args=args)
    start = torch.linspace(-1, 1, 65).to(dtype)  # with whole vectors of a kernel, and a rest
    ours, plain, unused = (nn.Parameter(start.clone()) for _ in range(3))
    options: dict[str, Any] = {"momentum": 0.8} if name == "sgd" else {}
    options |= args | {"lr": LR, "weight_decay": 0.1, "fused": False, "foreach": False}
    pairs = [
        (optimizer_of_config(train, [ours, unused]), ours),
        (BUILTIN[name]([plain], **options), plain),
    ]
    for step in range(4):
        for optimizer, parameter in pairs:
            parameter.grad = (parameter.detach() * 3 + step).sin()
            optimizer.step()
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype in (torch.bfloat16, torch.float16) else {}
    torch.testing.assert_close(ours, plain, **tolerance)
    assert torch.equal(unused, start)


def test_momentum_begins_at_zero_even_if_the_first_step_is_skipped() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = optimizer_of_config(TrainConfig(momentum=0.9), [parameter])
    assert torch.equal(optimizer.state[parameter]["momentum_buffer"], torch.zeros(3))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adamw", {"amsgrad": True}),
        ("torch.optim:RMSprop", {"centered": True, "momentum": 0.5}),
    ],
)
def test_an_option_that_is_turned_on_later_begins_without_history(
    name: str, options: dict[str, Any]
) -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    before = optimizer_of_config(TrainConfig(optimizer=name), [parameter])
    before.step()
    train = TrainConfig(optimizer=name, optimizer_args=options)
    resumed = optimizer_of_config(train, [parameter])
    _restore_optimizer(resumed, before.state_dict())
    start = parameter.detach().clone()
    resumed.step()
    assert (parameter < start).all()


def test_an_optimizer_that_does_not_take_an_argument_says_so() -> None:
    train = TrainConfig(optimizer="torch.optim:RMSprop", optimizer_args={"beta": 1})
    with pytest.raises(TaskError, match=r"torch.optim:RMSprop takes no argument 'beta'"):
        optimizer_of_config(train, [nn.Parameter(torch.ones(1))])
