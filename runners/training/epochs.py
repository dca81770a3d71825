"""How many samples and steps an epoch has, and which of them remain.

A stream has no epochs: it is one without an end, and `train.max_steps` ends the run.
"""

from __future__ import annotations

from distrain.models.data import length
from distrain.models.streams import is_stream
from distrain.models.task import Task
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events.base import NEVER
from distrain.runners.training.batch_plan import BatchPlan, steps_per_epoch
from distrain.runners.training.task_optimizer import has_own_schedule

NO_EPOCHS = "the training data are a stream, which has no epochs"


class Epochs:
    """The epochs of a task's training data.

    `samples` and `steps` are those of a whole epoch. Of a stream, `samples` is more than any run
    can use, and `steps` is 0.
    """

    def __init__(self, task: Task, config: RunConfig) -> None:
        self._task = task
        self._config = config
        train = config.train
        self.is_endless = is_stream(task.train)
        if self.is_endless:
            self.samples = NEVER // train.batch_size * train.batch_size
            self.steps = 0
        else:
            self.samples = length(task.train)
            self.steps = steps_per_epoch(self.samples, train.batch_size, train.drop_last)

    def require_usable(self, ranks: int) -> None:
        """Raise ConfigError where the data do not fit the settings."""
        if self.is_endless:
            self._require_no_epochs()
        elif not self.samples:
            raise ConfigError([("data.name", "the training set is empty")])
        elif self.samples < ranks:
            problem = f"{ranks} ranks cannot share {self.samples} training samples"
            raise ConfigError([("devices", problem)])
        elif not self.steps:
            batch = self._config.train.batch_size
            problem = f"drops all {self.samples} samples, because a batch has {batch}"
            raise ConfigError([("train.drop_last", problem)])

    def _require_no_epochs(self) -> None:
        config = self._config.train
        problems = []
        if config.max_steps is None:
            problem = f"{NO_EPOCHS}: set the number of steps after which the run ends"
            problems.append(("train.max_steps", problem))
        if not has_own_schedule(self._task):
            if config.warmup_epochs:
                problems.append(("train.warmup_epochs", f"{NO_EPOCHS}; leave it at 0"))
            if config.schedule == "step":
                problems.append(("train.schedule", f'"step" counts epochs, and {NO_EPOCHS}'))
        if config.patience is not None and self._config.eval.every_steps is None:
            problem = f"it counts evaluations, and {NO_EPOCHS}: set eval.every_steps"
            problems.append(("train.patience", problem))
        if problems:
            raise ConfigError(problems)

    def notices(self) -> list[str]:
        """Return what a person may not expect of these data."""
        checkpoint = self._config.checkpoint
        if not (self.is_endless and checkpoint.keep) or checkpoint.every_steps is not None:
            return []
        return [
            f"{NO_EPOCHS}: a checkpoint is only written when the run ends or is stopped "
            "(checkpoint.every_steps is not set)"
        ]

    def plan(self, ranks: int, offset: int) -> BatchPlan:
        """Return the steps that remain of an epoch of which so many samples were used."""
        train = self._config.train
        return BatchPlan(
            self.samples,
            train.batch_size,
            ranks,
            accumulate=train.accumulate,
            drop_last=train.drop_last,
            offset=offset,
        )

    def total_steps(self, step: int, epoch: int, offset: int) -> int:
        """Return the step at which the run is complete, from its current position."""
        config = self._config.train
        total = NEVER
        if not self.is_endless:
            remaining = self.plan(1, offset).steps if epoch < config.epochs else 0
            total = step + remaining + max(0, config.epochs - epoch - 1) * self.steps
        return total if config.max_steps is None else max(step, min(total, config.max_steps))
