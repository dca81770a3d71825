"""The exact update of a step, and what the fused optimizers of GPUs may differ from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from msgspec import structs

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.verification.reference import PlainProcess
from distrain.runners.verification.update import ExactUpdate
from distrain.runners.verification.update_check import StepOfRun, compare_update

BETAS = (0.9, 0.999)
RATE = 0.001


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def plain_process(precision: str = "fp32", *, exact: bool = False) -> PlainProcess:
    changes = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}
    config = RunConfig().with_changes(changes | {"train.optimizer": "adam"})
    plan = structs.replace(plan_here(config), precision=precision)
    return PlainProcess(config, plan, torch.device("cpu"), exact=exact)


def fused_adam(state: dict[str, Any], gradients: dict[str, torch.Tensor], step: int) -> Any:
    """Return the state after a step of the kernel for GPUs, in which all numbers are fp32."""
    beta1, beta2, one = (torch.tensor(number) for number in (*BETAS, 1.0))
    weights, optimizer = {}, {}
    for index, (name, weight) in enumerate(state["weights"].items()):
        gradient = gradients[name]
        old = state["optimizer"].get(index, {})
        mean = beta1 * old.get("exp_avg", torch.zeros_like(weight)) + (one - beta1) * gradient
        square = old.get("exp_avg_sq", torch.zeros_like(weight))
        square = beta2 * square + (one - beta2) * gradient * gradient
        size = (square.sqrt() / (one - beta2**step).sqrt()) + 1e-8
        weights[name] = weight - RATE / (one - beta1**step) * mean / size
        optimizer[index] = {
            "step": torch.tensor(float(step)),
            "exp_avg": mean,
            "exp_avg_sq": square,
        }
    return {"weights": weights, "optimizer": optimizer, "groups": state["groups"]}


@pytest.mark.parametrize(
    ("device", "factor", "passes"),
    [("cuda", 1.0, True), ("cpu", 1.0, False), ("cuda", 1.001, False)],
)
def test_on_gpus_the_betas_of_adam_may_be_rounded(device: str, factor: float, passes: bool) -> None:
    process = plain_process()
    process.device = torch.device(device)
    update = ExactUpdate(process)
    draw = torch.Generator().manual_seed(0)
    state: dict[str, Any] = {
        "weights": process.state()[0],
        "optimizer": {},
        "groups": [{"lr_scale": 1.0}],
    }
    found = []
    for step in range(1, 6):
        gradients = {
            name: torch.randn(weight.shape, generator=draw) * 1e-3
            for name, weight in state["weights"].items()
        }
        after = fused_adam(state, {name: factor * each for name, each in gradients.items()}, step)
        tap = after | {"gradients": gradients, "skipped": False}
        after_step = StepOfRun(step, state, tap, RATE, gradients)
        found.append(compare_update(update, after_step).passed)
        state = after
    assert all(found) is passes


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_update_of_a_scripted_model_can_be_computed() -> None:
    process = plain_process()
    names = list(process.state()[0])
    process.model = torch.jit.script(process.model)
    assert ExactUpdate(process).names == names


def test_the_exact_process_leaves_the_precision_of_the_other_one() -> None:
    plain_process("tf32")
    plain_process("tf32", exact=True)
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
