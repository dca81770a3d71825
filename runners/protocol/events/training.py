"""What ranks report of training: phases, steps, evaluations and checkpoints."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Literal

import msgspec

from distrain.runners.protocol.events.base import Event, Int


class Phase(Event, frozen=True, tag="phase"):
    """A rank begins a phase, or goes on with one that reports its progress.

    "averaging" computes the statistics of averaged weights; "running" is a program of its own.
    """

    time: float
    rank: Int
    phase: Literal["loading", "training", "averaging", "evaluating", "saving", "running"]
    step: Int = 0


SAMPLE = "sample"  # what rates count, unless the task sets `item`
ENDLESS = 2**31 - 1  # steps and epochs of runs of a bench, which train until they are measured


class Facts(Event, frozen=True, tag="facts"):
    """What only a rank knows of the training; rank 0 sends it once, before the first step.

    `train_samples` and `steps_per_epoch` are 0 where the training data are a stream, without
    epochs. `start_step` and `start_epoch` count what an earlier run has finished.
    `start_epoch_steps` is the number of steps left in the first epoch (0: all of them), as a run
    may resume within an epoch and with another batch size. Rates are shown in `item`s, of which a
    sample has `items_per_sample`. `flops_per_sample` is 0 where it is not known. `model` and `data`
    are the classes of what the task has in place of those of the config; empty where it uses these.
    `best` is the metric by which the best checkpoint is chosen, `best_is` its direction, "max" or
    "min"; empty in messages of older versions.
    `lr` is the learning rate of the task's own optimizer, which the schedule multiplies; 0 where
    that of the plan is used. `has_own_schedule`: the task replaces the schedule of the config.
    """

    time: float
    train_samples: Int
    eval_samples: Int
    steps_per_epoch: Int
    total_steps: Int
    parameters: Int
    backend: str
    start_step: Int = 0
    start_epoch: Int = 0
    start_epoch_steps: Int = 0
    item: str = SAMPLE
    items_per_sample: float = 1.0
    flops_per_sample: float = 0.0
    model: str = ""
    data: str = ""
    best: str = ""
    best_is: str = ""
    lr: float = 0.0
    has_own_schedule: bool = False
    versions: dict[str, str] = {}
    notices: list[str] = []

    @property
    def has_epochs(self) -> bool:
        return self.steps_per_epoch > 0

    @property
    def last_step(self) -> int | None:
        """The step after which the training is complete; None if only a stop ends it."""
        return None if self.total_steps == ENDLESS else self.total_steps

    def epoch_at(self, step: float) -> float:
        """Return how many epochs are finished after a step, with the part of the current one.

        Only for data with epochs.
        """
        return self.start_epoch + (step - self._first_step) / self.steps_per_epoch

    def step_at(self, epoch: float) -> float:
        """Return the step at the end of which so many epochs are finished."""
        return self._first_step + (epoch - self.start_epoch) * self.steps_per_epoch

    @property
    def _first_step(self) -> int:
        """The step at which the first epoch of the run would have begun, had it been whole."""
        done = self.steps_per_epoch - (self.start_epoch_steps or self.steps_per_epoch)
        return self.start_step - done


class Window(Event, frozen=True, tag="window"):
    """Sums over consecutive steps of one rank; two consecutive windows merge without loss.

    `step` is the number of optimizer steps finished at the end of the window. `loss_sum` is over
    samples; the three losses are None once one was not finite, as JSON has neither NaN nor
    infinity. `loss_weight` is what to divide `loss_sum` by, None where that is `samples`. `data`,
    `forward`, `backward`, `comm` and `optimizer` are parts of `seconds`; the rest is other work of
    the loop. `overlap` and `wait` overlap those parts: `overlap` is the time in which gradients
    were communicated while backward computed, `wait` the time from the rank's arrival at each
    step's first all-reduce to the end of that all-reduce. All ranks leave it together, so the rank
    that waits least arrived last. Evaluation and checkpoints are between windows, not in them.
    `warmup` windows do not count for throughput.
    """

    time: float
    rank: Int
    epoch: Int
    step: Int
    steps: Int
    samples: Int
    loss_sum: float | None
    loss_min: float | None
    loss_max: float | None
    lr: float | None
    seconds: float
    data: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    comm: float = 0.0
    optimizer: float = 0.0
    overlap: float = 0.0
    wait: float = 0.0
    skipped: Int = 0
    warmup: bool = False
    loss_weight: float | None = None

    @property
    def weight(self) -> float:
        """What the mean loss counts for: `loss_sum` divided by it is that mean."""
        return self.samples if self.loss_weight is None else self.loss_weight

    def merged(self, later: Window) -> Window:
        """Return the window that covers this one and `later`, which must follow it directly.

        It is a warm-up window if either is, so that no warm-up counts for throughput.
        """
        sums = {name: getattr(self, name) + getattr(later, name) for name in WINDOW_SUMS}
        has_weight = (self.loss_weight, later.loss_weight) != (None, None)
        return msgspec.structs.replace(
            later,
            loss_sum=_unless_missing(operator.add, self.loss_sum, later.loss_sum),
            loss_min=_unless_missing(min, self.loss_min, later.loss_min),
            loss_max=_unless_missing(max, self.loss_max, later.loss_max),
            warmup=self.warmup or later.warmup,
            loss_weight=self.weight + later.weight if has_weight else None,
            **sums,
        )


def _unless_missing(
    combine: Callable[[float, float], float], a: float | None, b: float | None
) -> float | None:
    return None if a is None or b is None else combine(a, b)


PHASES = ("data", "forward", "backward", "comm", "optimizer")
OTHER = "other"  # the rest of a window: work of the loop that belongs to no phase
OVERLAPPING = ("overlap", "wait")  # seconds that overlap the phases
WINDOW_SUMS = ("steps", "samples", "seconds", *PHASES, *OVERLAPPING, "skipped")


class Metric(msgspec.Struct, frozen=True):
    """A mean over the evaluation set, as a sum and the count to divide it by."""

    total: float | None
    count: Int

    @classmethod
    def of(cls, total: float, count: int) -> Metric:
        """Return a metric whose total is None where it is not finite."""
        return cls(total if math.isfinite(total) else None, count)

    @property
    def value(self) -> float | None:
        """The mean; None without samples or where the sum is not finite."""
        return self.total / self.count if self.total is not None and self.count else None


class Evaluation(Event, frozen=True, tag="evaluation"):
    """All-reduced sums over the evaluation set, each sample exactly once; sent by rank 0."""

    time: float
    epoch: Int
    step: Int
    samples: Int
    seconds: float
    metrics: dict[str, Metric]

    @property
    def position(self) -> str:
        """After which step it was: "epoch 3, step 120", or "step 7" within the first epoch.

        A stream has no epochs.
        """
        epoch = f"epoch {self.epoch:,}, " if self.epoch else ""
        return f"{epoch}step {self.step:,}"


class Saved(Event, frozen=True, tag="saved"):
    """A checkpoint is complete on disk. `path` is relative to the record."""

    time: float
    epoch: Int
    step: Int
    path: str
    seconds: float
    bytes: Int
    best: bool = False


class NonFinite(Event, frozen=True, tag="nonfinite"):
    """The loss of a rank was NaN or infinite at `step`."""

    time: float
    rank: Int
    step: Int
    loss: str
