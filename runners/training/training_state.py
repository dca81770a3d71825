"""What the checkpoints keep of a training: how it is saved, and how another continues from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distrain.models.errors import TaskError
from distrain.runners import formatting
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Notice, Saved
from distrain.runners.training import checkpoint
from distrain.runners.training.average import WeightAverage
from distrain.runners.training.buffers import changed_buffers, make_buffers
from distrain.runners.training.optim import begin_missing_state, begin_momenta
from distrain.runners.training.random_state import get_random_state, set_random_state
from distrain.runners.training.task_optimizer import option_names

if TYPE_CHECKING:
    from distrain.runners.training.trainer import Training


class TrainingState:
    """Saves a training, and restores it in parts: each once what it belongs to is made.

    `folder` is that of the run. `is_evaluation_pending` says that the checkpoint was written
    before the evaluation of its step. What restores raises ConfigError where the checkpoint does
    not fit or is damaged.
    """

    def __init__(self, run: Training, folder: Path) -> None:
        self._run = run
        self._files = checkpoint.Checkpoints(folder / "checkpoints", run.config.checkpoint.keep)
        self._saved_at = -1
        self._has_saved = False
        self.is_evaluation_pending = False

    def load(self) -> dict[str, Any] | None:
        """Read the checkpoint to continue from, if there is one.

        After the ranks were restarted this is the last checkpoint of this run. All ranks read the
        file that rank 0 chooses: another run may replace a `last.pt` meanwhile, and another host
        may still see an earlier one. Rank 0 reads it for all ranks if only its host has the run's
        folder.
        """
        run = self._run
        path = self._files.last or run.config.checkpoint.load
        is_shared = run.plan.scheduled or not run.plan.spread
        if is_shared:
            path = run.world.broadcast_object(path and checkpoint.follow_link(path))
        is_read_here = is_shared or run.world.is_leader
        content = checkpoint.load_training(path) if path and is_read_here else None
        return content if is_shared else run.world.broadcast_object(content)

    def restore_shared(self, content: dict[str, Any]) -> None:
        """Restore what is the same on all ranks, before the strategy wraps it."""
        run = self._run
        _require_same_optimizer(content, run.config)
        try:
            make_buffers(run.model, content.get("changed_buffers", ()), content["model"])
            run.model.load_state_dict(content["model"])
            _restore_optimizer(run.optimizer, content["optimizer"])
        except checkpoint.DAMAGE:
            problem = "the checkpoint is of another model: its parameters do not fit"
            raise ConfigError([("checkpoint.load", problem)]) from None
        with checkpoint.refusing_damage("loss scale"):
            run.precision.load_state_dict(content["precision"])
        self._restore_position(content)
        self._restore_scores(content)

    def _restore_position(self, content: dict[str, Any]) -> None:
        run = self._run
        run.step = content["step"]
        run.epoch = content["epoch"]
        run.offset = content["offset"]
        self.is_evaluation_pending = not content.get("evaluated", True)
        if run.batch_plan().steps <= 0:  # with this batch size nothing is left of that epoch
            run.epoch += 1
            run.offset = 0

    def _restore_scores(self, content: dict[str, Any]) -> None:
        run = self._run
        if content.get("best_metric") != run.best.metric:
            return
        run.best.score = content.get("best")
        if isinstance(patience := content.get("patience"), dict):
            run.patience.load_state(patience)
        if run.patience.is_exhausted and self._files.last is None:
            run.patience.waited = 0  # a person resumes the run to train it longer

    def restore_average(self, average: WeightAverage, content: dict[str, Any]) -> None:
        """Continue the average of a checkpoint, if it has one."""
        if not content.get(average.rule.name):
            problem = "the checkpoint has no average of the weights: a new one begins"
            self._run.notices.append(problem)
            return
        with checkpoint.refusing_damage("average of the weights"):
            average.load_state(content[average.rule.name])

    def restore_own(self, content: dict[str, Any]) -> None:
        """Restore what belongs to this rank alone, if the number of ranks is the same."""
        run = self._run
        ranks = content["world_size"]
        if ranks != run.world.size:
            run.notices.append(
                f"resumed with {formatting.plural(run.world.size, 'rank')} "
                f"from a checkpoint of {ranks}: "
                "each step has the same samples, but random numbers differ"
            )
            return
        own = content["ranks"][run.world.rank]
        if own["strategy"]:
            _arrange_buckets(run)
            run.model.load_state_dict(content["model"])
            with checkpoint.refusing_damage("state of the strategy"):
                run.strategy.load_state(own["strategy"])
                scale = content["precision"].get("scale", 1.0)
                if scale != run.precision.scale:  # resumed in another precision
                    run.strategy.rescale(run.precision.scale / scale)
        with checkpoint.refusing_damage("random state"):
            set_random_state(own["random"], run.world.device)

    def require_loadable(self) -> None:
        """Raise TaskError where a checkpoint of this training could not be loaded."""
        is_saved = self._run.config.checkpoint.keep > 0
        if is_saved and (problem := checkpoint.why_unloadable(_shared_state(self._run))):
            raise TaskError("task.name", problem)

    def save(self) -> None:
        """Write a checkpoint of this step, once; all ranks must call it, and wait for rank 0."""
        run = self._run
        if run.config.checkpoint.keep == 0 or self._saved_at == run.step:
            return
        began = time.perf_counter()
        run.renew_statistics()
        run.enter("saving")
        run.sync_buffers()
        own = {
            "random": get_random_state(run.world.device),
            "strategy": run.strategy.state(),
            "finite": run.meter.finite,
        }
        ranks = run.world.gather_objects(own)
        self._saved_at = run.step
        all_finite = all(rank["finite"] for rank in ranks)
        wanted = all_finite or run.config.train.on_nan != "stop"
        with run.world.waiting_for_leader():
            if run.world.is_leader and wanted:
                self._write(ranks, began)

    def _write(self, ranks: list[dict[str, Any]], began: float) -> None:
        run = self._run
        is_best = run.is_evaluated and run.best.is_better(run.score)
        if is_best:
            run.best.score = run.score
        content = {**_shared_state(run), "ranks": ranks}
        if not self._has_saved:  # what the optimizer keeps was not there before the first step
            self._has_saved = True
            if text := checkpoint.why_unloadable(content):
                run.reporter.send(Notice(time=time.time(), rank=run.world.rank, text=text))
        path = self._files.save(content, is_best)
        run.reporter.send(
            Saved(
                time=time.time(),
                epoch=run.epoch,
                step=run.step,
                path=f"checkpoints/{path.name}",
                seconds=time.perf_counter() - began,
                bytes=path.stat().st_size,
                best=is_best,
            )
        )


def _shared_state(run: Training) -> dict[str, Any]:
    """Return the content of a checkpoint that is the same on all ranks."""
    return {
        "step": run.step,
        "epoch": run.epoch,
        "offset": run.offset,
        "best": run.best.score,
        "best_metric": run.best.metric,
        "patience": run.patience.state(),
        "evaluated": run.is_evaluated,
        "model": run.model.state_dict(),
        "changed_buffers": changed_buffers(run.model, run.buffers_at_start),
        **({run.average.rule.name: run.average.state()} if run.average else {}),
        "optimizer": run.optimizer.state_dict(),
        "precision": run.precision.state_dict(),
        "world_size": run.world.size,
        "config": run.config.to_toml(),
    }


def _require_same_optimizer(content: dict[str, Any], config: RunConfig) -> None:
    try:
        optimizer = RunConfig.from_toml(content["config"]).train.optimizer
    except ConfigError:
        problem = "the checkpoint is damaged: its config cannot be read"
        raise ConfigError([("checkpoint.load", problem)]) from None
    if optimizer != config.train.optimizer:
        problem = f"the checkpoint was trained with {optimizer}; the optimizer cannot change"
        raise ConfigError([("train.optimizer", problem)])


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore momenta from the checkpoint; keep the options of this config or task."""
    names = option_names(optimizer)
    groups = optimizer.param_groups
    options = [{key: group[key] for key in names & group.keys()} for group in groups]
    checkpoint.restore_optimizer_state(optimizer, state)
    for group, own in zip(optimizer.param_groups, options, strict=True):
        group.update(own)
    if isinstance(optimizer, torch.optim.SGD):
        begin_momenta(optimizer)
    elif type(optimizer).__module__.startswith("torch.optim."):  # others have names of their own
        begin_missing_state(optimizer)


def _arrange_buckets(run: Training) -> None:
    """Run one backward without a step.

    DDP arranges its buckets by it, and the state of a strategy has their layout.
    """
    batch = next(run.batches.epoch(run.epoch, run.batch_plan()))
    run.loss(batch).backward()
    run.optimizer.zero_grad()
