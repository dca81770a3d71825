"""Checks the optimizer's step: each weight, and each number that the optimizer keeps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from distrain.runners.training.tap import Tensors
from distrain.runners.verification.result import VerificationCheck
from distrain.runners.verification.update import BeforeUpdate, ExactUpdate, Updated
from distrain.runners.verification.wide import widen


class StepOfRun(NamedTuple):
    """A step of a run: its state `before`, what its `tap` gave after it, and its learning rate.

    `used`: the gradients of the plain process, None if they overflow. A parameter without one must
    stay as it is, also where the run has zeros.
    """

    number: int
    before: dict[str, Any]
    tap: dict[str, Any]
    rate: float
    used: Tensors | None


def compare_update(update: ExactUpdate, step: StepOfRun) -> VerificationCheck:
    """Compare the state of a run after a step with what the optimizer makes of its gradients."""
    if moved := _find_moved(update.names, step):
        detail = (
            f"no rank uses {moved}, but the optimizer steps it: its gradient is zero, and not none"
        )
        return VerificationCheck(
            what="weights", step=step.number, passed=False, tensor=moved, detail=detail
        )
    right = _update_in_fp64(update, step)
    actual = step.tap["weights"] | update.state_of(step.tap["optimizer"])
    worst = _find_worst(actual, right)
    passed = worst.excess <= 1.0
    return VerificationCheck(
        what="weights",
        step=step.number,
        passed=passed,
        tensor=worst.tensor,
        error=worst.error if math.isfinite(worst.error) else None,
        limit=worst.limit,
        detail="" if passed else _describe_update(worst.tensor, step, right),
    )


def _update_in_fp64(update: ExactUpdate, step: StepOfRun) -> Updated:
    """Return what the optimizer makes of the gradients of the run; nothing if it skips the step."""
    before, used = step.before, step.used
    if step.tap["skipped"]:
        values = {name: widen(tensor) for name, tensor in before["weights"].items()}
        return Updated(values, {name: torch.zeros_like(t.abs()) for name, t in values.items()})
    # A new optimizer has no state; that of the run may be zeros, which means the same.
    state = before["optimizer"] if step.number > 1 else {}
    missing = {name: torch.zeros_like(gradient) for name, gradient in (used or {}).items()}
    gradients = {
        name: gradient
        for name, gradient in (missing | step.tap["gradients"]).items()
        if used is None or name in used
    }
    return update.step(
        BeforeUpdate(before["weights"], gradients, state, step.rate, before["groups"])
    )


class _Deviation(NamedTuple):
    """How far an element of a tensor is from its right value; `excess` is error / limit."""

    tensor: str = ""
    error: float = 0.0
    limit: float = 0.0
    excess: float = -1.0


def _find_worst(actual: Tensors, right: Updated) -> _Deviation:
    """Return the greatest deviation of all elements; a state that is missing means zeros."""
    worst = _Deviation()
    for name, value in right.values.items():
        limits = right.limits[name].flatten()
        errors = ((widen(actual[name]) - value) if name in actual else value).abs().flatten()
        excess = (errors / limits).nan_to_num(0.0, math.inf)
        excess[errors.isnan()] = math.inf
        if excess.numel() and float(excess.max()) > worst.excess:
            at = int(excess.argmax())
            worst = _Deviation(name, float(errors[at]), float(limits[at]), float(excess[at]))
    return worst


def _find_moved(names: list[str], step: StepOfRun) -> str:
    """Return a parameter that the plain process does not use, and the run has stepped."""
    before, tap, used = step.before, step.tap, step.used
    if used is None or tap["skipped"]:
        return ""
    for index, name in enumerate(names):
        if name in used or name not in tap["gradients"] or tap["gradients"][name].any():
            continue
        old, new = (each["optimizer"].get(index, {}) for each in (before, tap))
        has_moved = not torch.equal(before["weights"][name], tap["weights"][name])
        if has_moved or any(_differs(old.get(key), value) for key, value in new.items()):
            return name
    return ""


def _differs(old: Any, new: Any) -> bool:
    """Return whether a state has changed; a missing one means zeros."""
    if not torch.is_tensor(new):
        return False
    return bool(new.any()) if old is None else not torch.equal(old, new)


def _describe_update(name: str, step: StepOfRun, update: Updated) -> str:
    """Return how the update of a tensor differs: by a factor, or in how many elements."""
    if name not in step.tap["weights"]:
        parameter, _, key = name.partition(":")
        return f"{key} of the optimizer for {parameter} is not what its gradient gives"
    start = widen(step.before["weights"][name])
    expected = update.values[name] - start
    actual = widen(step.tap["weights"][name]) - start
    beyond = int(((actual - expected).abs() > update.limits[name]).sum())
    square = float(torch.vdot(expected.flatten(), expected.flatten()).real)
    product = float(torch.vdot(expected.flatten(), actual.flatten()).real)
    ratio = product / square if square else math.inf
    text = (
        f"{beyond:,} of {actual.numel():,} elements of {name} are not what the optimizer makes of "
        "the gradient"
    )
    is_multiple = float((actual - ratio * expected).norm()) < 0.01 * float(actual.norm())
    if math.isfinite(ratio) and is_multiple:
        text += f": {name} moves {ratio:.3g} times as far"
    return text
