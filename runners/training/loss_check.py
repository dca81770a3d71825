"""Checks the first loss of a task: what it is, and that it was computed by the wrapped model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from distrain.models.errors import TaskError
from distrain.models.places import place_of
from distrain.models.task import Task
from distrain.models.values import describe
from distrain.runners.training.trainer import Training


def check_first_loss(run: Training) -> None:
    """Let the next call of `run.loss` check what it returns, and whether it called the model."""
    plain = run.loss

    def check(batch: Any) -> Tensor:
        run.loss = plain
        had_gradients = _has_gradients(run)
        with _counted_calls(run) as calls:
            loss = plain(batch)
        if _has_gradients(run) and not had_gradients:
            problem = f"{place_of(run.task.loss)} must not call backward(): the run does, with the "
            raise TaskError("task.name", f"{problem}loss that it returns")
        _require_scalar(run.task, loss)
        if not calls and run.callable is not run.model:
            problem = f"{place_of(run.task.loss)} must call the `model` that it is given, not "
            problem += "self.model or a part of it: only the first is synchronised between ranks"
            raise TaskError("task.name", problem)
        return loss

    run.loss = check


def _has_gradients(run: Training) -> bool:
    return any(each.grad is not None for each in run.model.parameters())


@contextmanager
def _counted_calls(run: Training) -> Iterator[list[object]]:
    """Note each call of the wrapped model within the block, in a list."""
    calls: list[object] = []
    model: Any = run.callable
    if run.config.train.compile:  # it would trace another function
        handle = model.register_forward_pre_hook(lambda module, _: calls.append(module))
        yield calls
        handle.remove()
        return
    forward = model.forward

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(None)
        return forward(*args, **options)

    own = vars(model).get("forward")
    model.forward = counted  # which notices a call of `model.forward` too
    yield calls
    del model.forward
    if own is not None:
        model.forward = own


def _require_scalar(task: Task, loss: object) -> None:
    place = place_of(task.loss)
    if not isinstance(loss, Tensor) or loss.ndim or loss.is_complex():
        problem = f"{place} must return the mean over the samples, a scalar tensor"
        raise TaskError("task.name", f"{problem}, but it returned {describe(loss)}")
    if not loss.requires_grad:
        problem = f"the loss of {place} has no gradient: it does not depend on a parameter that "
        raise TaskError("task.name", problem + "is trained, or it was detached")
