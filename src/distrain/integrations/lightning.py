"""A logger for Lightning: `Trainer(logger=DistrainLogger())`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import distrain
from distrain.integrations import begin_training, only_numbers

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
        from pytorch_lightning.loggers import Logger
    else:
        from lightning.pytorch import Callback
        from lightning.pytorch.loggers import Logger
except ModuleNotFoundError as error:
    raise ImportError(
        f"distrain.integrations.lightning needs the package lightning: {error}"
    ) from None


class DistrainLogger(Logger):  # type: ignore[misc]
    """Reports steps, what the module logs, and evaluations. Stops the Trainer with the run.

    It adds a callback to the Trainer, which counts steps and samples. All ranks report: the means
    of an evaluation are weighted by the samples of each rank. Of several in a Trainer the first one
    reports.
    """

    def __init__(self) -> None:
        super().__init__()
        self._progress = _Progress()
        self._is_first = True

    @property
    def name(self) -> str:
        return "distrain"

    @property
    def version(self) -> str | int:
        return distrain.init(reuse=True).id or 0

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        config = vars(params) if isinstance(params, Namespace) else params
        distrain.init(config=config, reuse=True)

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Add the callback. The Trainer calls this before it starts, with its module."""
        distrain.init(reuse=True)  # not earlier: here the Trainer has formed the process group
        callbacks = model.trainer.callbacks
        first = next((each for each in callbacks if isinstance(each, _Progress)), None)
        self._is_first = first in (None, self._progress)
        if first is None:
            callbacks.append(self._progress)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        if not self._is_first:
            return
        values = only_numbers(metrics)
        samples = self._progress.take_evaluated_samples()
        if samples:
            values.pop("epoch", None)
            distrain.log_eval(values, samples)
        else:
            distrain.log(values, step if self._progress.gives_steps else None)


class _Progress(Callback):  # type: ignore[misc]
    """Counts the optimizer steps of a Trainer, and the samples of steps and evaluations."""

    def __init__(self) -> None:
        self._steps = 0
        self._samples: int | None = 0  # of the step that is not finished
        self._evaluating: int | None = 0  # samples of the evaluation that runs
        self._evaluated: int | None = None  # of the one that has ended, until it is logged
        self.gives_steps = True  # those of the Trainer, with what it logs

    def take_evaluated_samples(self) -> int | None:
        """Return the samples of an evaluation whose means are logged now, else None."""
        evaluated, self._evaluated = self._evaluated, None
        return evaluated

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        self._steps = trainer.global_step
        self.gives_steps = begin_training()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._samples = _add(self._samples, batch)
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            distrain.step(self._samples)
            self._samples = 0
        if distrain.should_stop():
            trainer.should_stop = True

    def on_validation_start(self, *_: Any) -> None:
        self._evaluating = 0

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self._evaluating = _add(self._evaluating, batch)

    def on_validation_epoch_end(self, trainer: Any, *_: Any) -> None:
        # The Trainer logs the means between this and on_validation_end.
        if not trainer.sanity_checking:
            self._evaluated = self._evaluating

    def on_validation_end(self, *_: Any) -> None:
        self._evaluated = None

    on_test_start = on_validation_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
    on_test_end = on_validation_end


def _add(samples: int | None, batch: Any) -> int | None:
    """Return the samples together with those of a batch; None once they are unknown."""
    size = _first_dimension(batch)
    return None if samples is None or size is None else samples + size


def _first_dimension(batch: Any) -> int | None:
    """Return dimension 0 of the first tensor in a batch; None where there is no such tensor."""
    if isinstance(batch, Mapping):
        batch = [*batch.values()]
    if isinstance(batch, list | tuple):
        sizes = map(_first_dimension, batch)
        return next((size for size in sizes if size is not None), None)
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else None
