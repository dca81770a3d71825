"""Checks that a task fits the config of its run, and names the settings that it replaces."""

from __future__ import annotations

import torch

from distrain.models.data import length
from distrain.models.task import Task
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.training.task_optimizer import has_own_schedule


def require_fit(config: RunConfig, task: Task, ranks: int) -> None:
    """Raise ConfigError where a task does not fit the config of a run with so many ranks."""
    if task.eval is None:
        _require_no_metric(config)
    elif not length(task.eval):
        raise ConfigError([("data.name", "the evaluation set is empty")])
    if ranks > 1:
        _require_dense_buffers(task)
    if not any(parameter.requires_grad for parameter in task.model.parameters()):
        problem = "no parameter of the model requires a gradient, so nothing can be trained"
        raise ConfigError([("model.name", problem)])


def _require_no_metric(config: RunConfig) -> None:
    """Raise ConfigError where a setting needs evaluations, which the task has no data for."""
    settings = {
        "checkpoint.best": config.checkpoint.best,
        "train.patience": config.train.patience,
    }
    problem = "the task has no evaluation data"
    if problems := [(key, problem) for key, value in settings.items() if value is not None]:
        raise ConfigError(problems)


def _require_dense_buffers(task: Task) -> None:
    """Raise ConfigError where ranks would have to copy a sparse buffer, which torch cannot."""
    for name, buffer in task.model.named_buffers():
        if buffer.layout is not torch.strided:
            problem = f"the buffer {name} is sparse, and cannot be copied between ranks: make "
            problem += "it a plain attribute of its module, which each rank makes"
            raise ConfigError([("model.name", problem)])


def replaced_settings(config: RunConfig, task: Task, own_rate: float | None) -> list[str]:
    """Return notices of the settings that the task replaces, and of what is evaluated.

    `own_rate`: the learning rate of the task's own optimizer, if it has one.
    """
    notices = []
    if own_rate is not None:
        notices.append(
            f"the task has its own optimizer, with a learning rate of {own_rate:g}: "
            "train.optimizer, lr, momentum and weight_decay are not used"
        )
    if has_own_schedule(task):
        notices.append(
            "the task has its own schedule: train.schedule and warmup_epochs are not used"
        )
    if config.train.ema:
        notices.append("evaluations use the average of the weights (train.ema)")
    if config.train.swa_share:
        notices.append(
            "evaluations use the average of the weights (train.swa_share), once it begins"
        )
    return notices
