"""How many samples and steps an epoch has, and which of them remain.

A stream has no epochs: it is one without an end, and `train.max_steps` ends the run.
"""

from __future__ import annotations

from distrain.models.data import length
from distrain.models.streams import is_stream
from distrain.models.task import Task
from distrain.runners.config.sections import TrainConfig
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

    def __init__(self, task: Task, config: TrainConfig) -> None:
        self._task = task
        self._config = config
        self.is_endless = is_stream(task.train)
        if self.is_endless:
            self.samples = NEVER // config.batch_size * config.batch_size
            self.steps = 0
        else:
            self.samples = length(task.train)
            self.steps = steps_per_epoch(self.samples, config.batch_size, config.drop_last)

    def require_usable(self, ranks: int) -> None:
        """Raise ConfigError where the data do not fit the settings."""
        if self.is_endless:
            self._require_no_epochs()
        elif self.samples < ranks:
            problem = f"{ranks} ranks cannot share {self.samples} training samples"
            raise ConfigError([("devices", problem)])
        elif not self.steps:
            problem = (
                f"drops all {self.samples} samples, because a batch has {self._config.batch_size}"
            )
            raise ConfigError([("train.drop_last", problem)])

    def _require_no_epochs(self) -> None:
        config = self._config
        problems = []
        if config.max_steps is None:
            problem = f"{NO_EPOCHS}: set the number of steps after which the run ends"
            problems.append(("train.max_steps", problem))
        if not has_own_schedule(self._task):
            if config.warmup_epochs:
                problems.append(("train.warmup_epochs", f"{NO_EPOCHS}; leave it at 0"))
            if config.schedule == "step":
                problems.append(("train.schedule", f'"step" counts epochs, and {NO_EPOCHS}'))
        if problems:
            raise ConfigError(problems)

    def plan(self, ranks: int, offset: int) -> BatchPlan:
        """Return the steps that remain of an epoch of which so many samples were used."""
        return BatchPlan(
            self.samples,
            self._config.batch_size,
            ranks,
            accumulate=self._config.accumulate,
            drop_last=self._config.drop_last,
            offset=offset,
        )

    def total_steps(self, step: int, epoch: int, offset: int) -> int:
        """Return the step at which the run is complete, from its current position."""
        config = self._config
        total = NEVER
        if not self.is_endless:
            remaining = self.plan(1, offset).steps if epoch < config.epochs else 0
            total = step + remaining + max(0, config.epochs - epoch - 1) * self.steps
        return total if config.max_steps is None else max(step, min(total, config.max_steps))
