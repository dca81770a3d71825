"""A callback for the Trainer of Hugging Face: `Trainer(callbacks=[DistrainCallback()])`."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import distrain
from distrain.integrations import begin_training, only_numbers

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ImportError(
        f"distrain.integrations.transformers needs the package transformers: {error}"
    ) from None

EVALUATION = "eval_"
# What the Trainer adds to the metrics of an evaluation.
SPEEDS = ("_runtime", "_time", "_per_second")


class DistrainCallback(TrainerCallback):  # type: ignore[misc]
    """Reports steps, what the Trainer logs, and evaluations. Stops the Trainer with the run.

    Samples are counted where all batches have the same size: with `dataloader_drop_last`, or where
    the batches divide the dataset. Of several in a Trainer the first one reports.
    """

    def __init__(self) -> None:
        self._batch_size: int | None = None
        self._batches = 0  # of the step that is not finished
        self._gives_steps = True  # those of the Trainer, with what it logs

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        distrain.init(config=_changed_settings(args), reuse=True)
        self._batch_size = _common_batch_size(train_dataloader, args.world_size)
        self._batches = 0
        self._gives_steps = begin_training()

    def _is_first(self, state: Any) -> bool:
        """Return whether no other of these callbacks reports this training, which has a state."""
        first: DistrainCallback = vars(state).setdefault("_distrain_callback", self)
        return first is self

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._batches += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        batches = self._batches + 1
        self._batches = 0
        if not self._is_first(state):
            return
        distrain.step(batches * self._batch_size if self._batch_size else None)
        if distrain.should_stop():
            control.should_training_stop = True
            control.should_save = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        values = {
            name: value
            for name, value in only_numbers(logs or {}).items()
            if not name.startswith(EVALUATION)
        }
        if values and self._is_first(state):
            distrain.log(values, state.global_step if self._gives_steps else None)

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: dict[str, Any] | None = None,
        eval_dataloader: Any = None,
        **_: Any,
    ) -> None:
        if not self._is_first(state):
            return
        means = {
            name.removeprefix(EVALUATION): value
            for name, value in only_numbers(metrics or {}).items()
            if name != "epoch" and not name.endswith(SPEEDS)
        }
        try:
            samples = len(eval_dataloader.dataset)
        except (AttributeError, TypeError):  # a stream: the number of samples is unknown
            distrain.log({f"{EVALUATION}{name}": mean for name, mean in means.items()})
        else:
            distrain.log_eval(means, samples, reduced=True)


def _common_batch_size(loader: Any, world_size: int) -> int | None:
    """Return the size of every batch of this rank; None if it is unknown or the last is smaller."""
    try:
        batches = loader.batch_sampler
        sampler = getattr(batches, "batch_sampler", batches).sampler  # that of all ranks
        size = int(loader.total_batch_size)
        return size // world_size if len(loader) * size <= len(sampler) else None
    except (AttributeError, TypeError):
        return None


def _changed_settings(args: Any) -> dict[str, Any]:
    """Return the settings that differ from the defaults, without the values of tokens."""
    shown = args.to_dict()
    changed = {}
    for field in fields(args):
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if getattr(args, field.name) != default:
            changed[field.name] = shown.get(field.name)
    return changed
