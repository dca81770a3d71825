"""What one rank trains with, built once from config, plan and task; and what it keeps of it in
checkpoints. How it trains is in `loop.py`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from models.build import build_task
from models.task import Task
from runners import checkpoint, strategies, words
from runners.clock import clock_for
from runners.config import RunConfig
from runners.errors import ConfigError
from runners.evaluate import evaluate
from runners.events import Evaluation, Facts, Metric, Phase, Saved
from runners.loading import Batches, Mover, evaluation_batches
from runners.meter import Meter
from runners.optim import make_optimizer, make_schedule
from runners.order import Order, steps_per_epoch
from runners.plan import Plan
from runners.precision import Precision
from runners.reporter import NullReporter, Reporter
from runners.world import World


class Training:
    """Model, optimizer, data and position of one rank.

    `step` counts finished optimizer steps of the whole run, `epoch` finished epochs, `offset`
    samples used of the current one. Raises ConfigError where task and plan do not fit.
    """

    def __init__(
        self,
        config: RunConfig,
        plan: Plan,
        world: World,
        task: Task,
        reporter: Reporter | NullReporter,
        folder: Path,
    ) -> None:
        self.config, self.plan, self.world, self.task = config, plan, world, task
        self.reporter = reporter
        self.step = self.epoch = self.offset = 0
        self.notices: list[str] = []
        self.samples = self._usable_samples()
        self.steps_per_epoch = steps_per_epoch(
            self.samples, config.train.batch_size, config.train.drop_last
        )
        self.model = self._placed(task.model)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(config.train, self.parameters, plan.lr)
        self.precision = Precision(plan.precision, world.device)
        self.checkpoints = checkpoint.Checkpoints(folder / "checkpoints", config.checkpoint.keep)
        self._best_metric, self._best_is = self._what_is_best()
        self._best: float | None = None
        self._evaluated_at = self._saved_at = -1
        self._score: float | None = None

        if saved := self._saved():
            self._load(saved)
        self._wrap(resumed=saved is not None)
        self.total_steps = self._count_steps()
        self.rate = make_schedule(config.train, plan.lr, self.steps_per_epoch, self.total_steps)
        self._mover = Mover(task, world.device, config.train.channels_last)
        self.batches = Batches(task, config, plan, world.rank, self._mover)
        skip = min(config.report.skip_steps, (self.total_steps - self.step) // 2)
        self.meter = Meter(
            reporter, world.rank, self.clock, config.report.window_s, warmup_until=self.step + skip
        )
        if saved:
            self._take_own(saved)

    def _saved(self) -> dict[str, Any] | None:
        """What to go on from: once the ranks were started anew, the last checkpoint of this run.
        Rank 0 reads it for all where its host alone has the record.
        """
        path = self.checkpoints.last or self.config.checkpoint.load
        shared = self.plan.scheduled or not self.plan.spread
        content = checkpoint.load(path) if path and (shared or self.world.leads) else None
        return content if shared else self.world.from_lead(content)

    def _usable_samples(self) -> int:
        samples, train = len(self.task.train), self.config.train  # type: ignore[arg-type]
        if samples < self.world.size:
            problem = f"{self.world.size} ranks cannot share {samples} training samples"
            raise ConfigError([("devices", problem)])
        if train.drop_last and samples < train.batch_size:
            problem = f"leaves nothing of {samples} samples in batches of {train.batch_size}"
            raise ConfigError([("train.drop_last", problem)])
        if not len(self.task.eval):  # type: ignore[arg-type]
            raise ConfigError([("data.name", "the evaluation set is empty")])
        return samples

    def _what_is_best(self) -> tuple[str, str]:
        """The metric that checkpoints are compared by, and whether "max" or "min" of it is best."""
        wanted = self.config.checkpoint
        name = wanted.best or self.task.best
        direction = wanted.best_is or (
            self.task.best_is if name == self.task.best else _usual(name)
        )
        if direction is None:
            problem = f'say whether "max" or "min" is best for {name}'
            raise ConfigError([("checkpoint.best_is", problem)])
        return name, direction

    def _placed(self, model: nn.Module) -> nn.Module:
        model = model.to(self.world.device)
        if self.config.train.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.config.train.sync_batchnorm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return model

    def _wrap(self, resumed: bool) -> None:
        self.clock = clock_for(self.world.device)
        self.strategy = strategies.build(self.config, self.world)
        self.wrapped = self.strategy.wrap(self.model, self.clock)
        self.optimizer = self.strategy.optimizer(self.optimizer, self.model, resumed)
        # Compiled after wrapping: so torch.compile can split the graph at DDP's buckets.
        self.callable: nn.Module = (
            torch.compile(self.wrapped) if self.config.train.compile else self.wrapped  # type: ignore[assignment]
        )

    def order(self) -> Order:
        """The steps that are left of the current epoch."""
        train = self.config.train
        return Order(
            self.samples,
            train.batch_size,
            self.world.size,
            accumulate=train.accumulate,
            drop_last=train.drop_last,
            offset=self.offset,
        )

    def _count_steps(self) -> int:
        """The step at which the run is complete, those before a resumption included."""
        train = self.config.train
        left = self.order().steps if self.epoch < train.epochs else 0
        later = max(0, train.epochs - self.epoch - 1) * self.steps_per_epoch
        total = self.step + left + later
        return total if train.max_steps is None else max(self.step, min(total, train.max_steps))

    def facts(self) -> Facts:
        """What only a rank can know of the run."""
        return Facts(
            time=time.time(),
            train_samples=self.samples,
            eval_samples=len(self.task.eval),  # type: ignore[arg-type]
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.total_steps,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            backend=self.plan.backend,
            start_step=self.step,
            start_epoch=self.epoch,
            start_epoch_steps=self.order().steps,
            versions=_versions(),
            notices=self.notices,
        )

    def enter(self, phase: Literal["training", "evaluating", "saving"]) -> None:
        """Say what this rank begins to do."""
        self.reporter.say(
            Phase(time=time.time(), rank=self.world.rank, phase=phase, step=self.step)
        )

    def evaluate(self) -> None:
        """Evaluate these weights, once: a second call at the same step does nothing."""
        if self._evaluated_at == self.step:
            return
        self.enter("evaluating")
        began = time.perf_counter()
        self.strategy.sync_buffers(self.model)
        samples, metrics = evaluate(
            self.task,
            self.strategy.for_evaluation(self.model, self.wrapped),
            evaluation_batches(self.task, self.config, self.plan, self.world.rank, self._mover),
            self.precision,
            self.world,
        )
        self._evaluated_at = self.step
        self._score = self._score_of(metrics)
        if self.world.leads:
            self.reporter.say(
                Evaluation(
                    time=time.time(),
                    epoch=self.epoch,
                    step=self.step,
                    samples=samples,
                    seconds=time.perf_counter() - began,
                    metrics=metrics,
                )
            )

    def _score_of(self, metrics: dict[str, Metric]) -> float | None:
        if (name := self._best_metric) not in metrics:
            problem = f"there is no metric {name!r}; the task has {', '.join(sorted(metrics))}"
            raise ConfigError([("checkpoint.best", problem)])
        return metrics[name].value

    def _is_best(self) -> bool:
        """Whether this step was evaluated, and better than every checkpoint before."""
        if self._evaluated_at != self.step or self._score is None:
            return False
        if self._best is None:
            return True
        return self._score > self._best if self._best_is == "max" else self._score < self._best

    def save(self) -> None:
        """Write a checkpoint of this step, once; all ranks must call it, and wait for it."""
        if self.config.checkpoint.keep == 0 or self._saved_at == self.step:
            return
        self.enter("saving")
        began = time.perf_counter()
        self.strategy.sync_buffers(self.model)
        own = {
            "random": checkpoint.random_state(self.world.device),
            "strategy": self.strategy.state(),
            "finite": self.meter.finite,
        }
        ranks = self.world.gathered(own)
        self._saved_at = self.step
        spoilt = self.config.train.on_nan == "stop" and not all(rank["finite"] for rank in ranks)
        with self.world.led():
            if self.world.leads and not spoilt:
                self._write(ranks, began)

    def _write(self, ranks: list[dict[str, Any]], began: float) -> None:
        if best := self._is_best():
            self._best = self._score
        path = self.checkpoints.save({**self._state(), "ranks": ranks}, best)
        self.reporter.say(
            Saved(
                time=time.time(),
                epoch=self.epoch,
                step=self.step,
                path=f"checkpoints/{path.name}",
                seconds=time.perf_counter() - began,
                bytes=path.stat().st_size,
                best=best,
            )
        )

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "epoch": self.epoch,
            "offset": self.offset,
            "best": self._best,
            "best_metric": self._best_metric,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
            "world_size": self.world.size,
            "config": self.config.to_toml(),
        }

    def _load(self, content: dict[str, Any]) -> None:
        """Take over from a checkpoint what is the same on all ranks."""
        before = RunConfig.from_toml(content["config"]).train.optimizer
        if before != self.config.train.optimizer:
            problem = f"the checkpoint was trained with {before}, which cannot change on the way"
            raise ConfigError([("train.optimizer", problem)])
        try:
            self.model.load_state_dict(content["model"])
            self._load_optimizer(content["optimizer"])
        except (RuntimeError, ValueError):
            problem = "the checkpoint is of another model: its parameters do not fit"
            raise ConfigError([("checkpoint.load", problem)]) from None
        self.precision.load_state_dict(content["precision"])
        self.step, self.epoch, self.offset = content["step"], content["epoch"], content["offset"]
        if self.order().steps <= 0:  # with this batch size nothing is left of that epoch
            self.epoch, self.offset = self.epoch + 1, 0
        if content["best_metric"] == self._best_metric:
            self._best = content["best"]

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        """Momenta of the checkpoint, options of this config: they may have been changed."""
        options = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict(state)
        for group, own in zip(self.optimizer.param_groups, options, strict=True):
            group.update(own)

    def _take_own(self, content: dict[str, Any]) -> None:
        """Take over what belongs to this rank alone, where there is the same number of them."""
        before = content["world_size"]
        if before != self.world.size:
            self.notices.append(
                f"goes on with {self.world.size} ranks from a checkpoint of {before}: "
                "the same samples in each step, other random numbers"
            )
            return
        own = content["ranks"][self.world.rank]
        if own["strategy"]:
            self._rehearse()
            self.model.load_state_dict(content["model"])
            self.strategy.load_state(own["strategy"])
        checkpoint.set_random_state(own["random"], self.world.device)

    def _rehearse(self) -> None:
        """One backward without a step: DDP lays its buckets out by it, and what a strategy
        remembers of them has that layout.
        """
        batch = next(self.batches.epoch(self.epoch, self.order()))
        self.task.loss(self.callable, batch).backward()
        self.optimizer.zero_grad()


def make_training(
    config: RunConfig,
    plan: Plan,
    world: World,
    reporter: Reporter | NullReporter,
    folder: Path,
) -> Training:
    """Build the config's task and what trains it; random numbers begin at the config's seed."""
    train = config.train
    torch.use_deterministic_algorithms(train.deterministic)
    checkpoint.seed_generators(train.seed)
    task = build_task(
        config.task,
        config.model,
        config.data,
        label_smoothing=train.label_smoothing,
        seed=train.seed,
        device=world.device,
    )
    # The same weights everywhere, but dropout and the like of its own on every rank.
    checkpoint.seed_generators(train.seed + 1 + world.rank)
    return Training(config, plan, world, task, reporter, folder)


def _usual(metric: str) -> str | None:
    """Which value of a metric is better, where its name tells."""
    if metric == "loss":
        return "min"
    return "max" if words.is_share(metric) else None


def _versions() -> dict[str, str]:
    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found
