"""Which checkpoint of a run is the best one, and by which metric."""

from __future__ import annotations

from collections.abc import Iterable

from distrain.models.task import Task
from distrain.runners import formatting
from distrain.runners.config.sections import CheckpointConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Metric


class BestScore:
    """The best value of the metric that `[checkpoint]` or the task names.

    `score` is that of the best checkpoint so far, None before the first. Raises ConfigError
    where nothing says whether the maximum or the minimum of the metric is best.
    """

    def __init__(self, config: CheckpointConfig, task: Task) -> None:
        self.metric = config.best or task.best
        self.score: float | None = None
        direction: str | None = config.best_is
        if direction is None:
            direction = (
                task.best_is if self.metric == task.best else formatting.best_is(self.metric)
            )
        if direction is None:
            problem = f'set whether "max" or "min" is best for {self.metric}'
            raise ConfigError([("checkpoint.best_is", problem)])
        self._is_max = direction == "max"

    def require(self, names: Iterable[str]) -> None:
        """Raise ConfigError if the metric is not one of the task's."""
        if self.metric not in names:
            problem = f"there is no metric {self.metric!r}; the task has {', '.join(sorted(names))}"
            raise ConfigError([("checkpoint.best", problem)])

    def score_of(self, metrics: dict[str, Metric]) -> float | None:
        """Return the metric's value. Raises ConfigError where the task does not have it."""
        self.require(metrics)
        return metrics[self.metric].value

    def is_better(self, score: float | None) -> bool:
        """Return whether a checkpoint with this score would be the best one so far."""
        if score is None:
            return False
        if self.score is None:
            return True
        return score > self.score if self._is_max else score < self.score
