"""Which checkpoint of a run is the best one, and by which metric."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distrain.models.task import Task
from distrain.runners import formatting
from distrain.runners.config.training_sections import CheckpointConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Metric


class BestScore:
    """The best value of the metric that `[checkpoint]` or the task names.

    `score` is that of the best checkpoint so far, None before the first; `direction` is "max" or
    "min". Raises ConfigError where nothing says whether the maximum or the minimum of the metric is
    best.
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
        self.direction = direction

    def require(self, names: Iterable[str]) -> None:
        """Raise ConfigError if the metric is not one of the task's."""
        if self.metric not in names:
            problem = f"there is no metric {self.metric!r}; the task has {', '.join(sorted(names))}"
            raise ConfigError([("checkpoint.best", problem)])

    def score_of(self, metrics: dict[str, Metric]) -> float | None:
        """Return the metric's value. Raises ConfigError where the task does not have it.

        Nothing follows from a mean that is not finite, so the value may be missing then: None.
        """
        if self.metric not in metrics and any(each.value is None for each in metrics.values()):
            return None
        self.require(metrics)
        return metrics[self.metric].value

    def is_better(self, score: float | None) -> bool:
        """Return whether a checkpoint with this score would be the best one so far."""
        if score is None:
            return False
        if self.score is None:
            return True
        return score > self.score if self.direction == "max" else score < self.score


class Patience:
    """Counts the evaluations in a row without a better score, for `train.patience`.

    All ranks count alike, because all have the same scores.
    """

    def __init__(self, limit: int | None, best: BestScore) -> None:
        self._limit = limit
        self._best = best
        self.waited = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether training must end."""
        return self._limit is not None and self.waited >= self._limit

    @property
    def reason(self) -> str:
        """Return why training has ended."""
        evaluations = formatting.plural(self.waited, "evaluation")
        return f"no better {self._best.metric} in {evaluations} (train.patience)"

    def add(self, score: float | None) -> None:
        """Count an evaluation."""
        if self._best.is_better(score):
            self._best.score = score
            self.waited = 0
        else:
            self.waited += 1

    def state(self) -> dict[str, float | int | None]:
        """Return what a checkpoint must keep."""
        return {"score": self._best.score, "waited": self.waited}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        score, waited = state.get("score"), state.get("waited")
        self._best.score = float(score) if isinstance(score, float | int) else None
        self.waited = waited if isinstance(waited, int) and waited >= 0 else 0
