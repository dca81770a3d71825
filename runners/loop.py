"""The one training loop, for every strategy, launcher and precision."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.task import Task
from runners import checkpoint, strategies
from runners.config import Checkpoint, Eval, RunConfig
from runners.errors import ConfigError
from runners.evaluate import evaluate
from runners.events import Evaluation, Facts, Finished, Metric, Phase, Saved
from runners.loading import Batches, Mover, evaluation_batches
from runners.meter import Meter, clock_for
from runners.optim import make_optimizer, make_schedule, set_rate
from runners.order import Order, steps_per_epoch
from runners.plan import Plan
from runners.precision import Precision
from runners.reporter import NullReporter, Reporter
from runners.world import World


class Training:
    """One rank's training of a task: what `run()` needs and what a checkpoint keeps."""

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
        self.step = self.epoch = self.offset = 0  # offset: samples used of the current epoch
        self.best: float | None = None
        self.evaluated_at = self.saved_at = -1
        self.notices: list[str] = []
        self.samples = self._usable_samples()

        self.model = task.model.to(world.device)
        if config.train.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if config.train.sync_batchnorm:
            self.model = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(config.train, self.parameters, plan.lr)
        self.precision = Precision(plan.precision, world.device)
        self.clock = clock_for(world.device)
        self.strategy = strategies.build(config, world)
        self.checkpoints = checkpoint.Checkpoints(folder / "checkpoints", config.checkpoint.keep)
        resumed = self._load(config.checkpoint.load) if config.checkpoint.load else {}
        self.wrapped = self.strategy.wrap(self.model, self.clock)
        self.strategy.load_state(resumed.get("strategy", {}))
        self.callable: nn.Module = (
            torch.compile(self.wrapped) if config.train.compile else self.wrapped  # type: ignore[assignment]
        )
        self.mover = Mover(task, world.device, config.train.channels_last)
        self.batches = Batches(
            task,
            config.data,
            config.train.seed,
            world.rank,
            plan.loader_workers[world.rank],
            self.mover,
        )
        self.total_steps = self._count_steps()
        first = self.step
        skip = min(config.report.skip_steps, (self.total_steps - first) // 2)
        self.meter = Meter(
            reporter, world.rank, self.clock, config.report.window_s, warmup_until=first + skip
        )
        self.rate = make_schedule(
            config.train,
            plan.lr,
            steps_per_epoch(self.samples, *self._batching()),
            self.total_steps,
        )
        if resumed:
            checkpoint.set_random_state(resumed["random"], world.device)

    def _usable_samples(self) -> int:
        samples = len(self.task.train)  # type: ignore[arg-type]
        if samples < self.world.size:
            problem = f"{self.world.size} ranks cannot share {samples} training samples"
            raise ConfigError([("devices", problem)])
        if self.config.train.drop_last and samples < self.config.train.batch_size:
            problem = f"leaves nothing of {samples} samples in batches of "
            raise ConfigError([("train.drop_last", problem + str(self.config.train.batch_size))])
        if not len(self.task.eval):  # type: ignore[arg-type]
            raise ConfigError([("data.name", "the evaluation set is empty")])
        return samples

    def _batching(self) -> tuple[int, bool]:
        return self.config.train.batch_size, self.config.train.drop_last

    def _order(self) -> Order:
        """The steps that are left of the current epoch."""
        batch_size, drop_last = self._batching()
        return Order(
            self.samples,
            batch_size,
            self.world.size,
            accumulate=self.config.train.accumulate,
            drop_last=drop_last,
            offset=self.offset,
        )

    def _count_steps(self) -> int:
        """Step at which the run is complete, those before a resumption included."""
        train = self.config.train
        later = max(0, train.epochs - self.epoch - 1)
        rest = self._order().steps if self.epoch < train.epochs else 0
        total = self.step + rest + later * steps_per_epoch(self.samples, *self._batching())
        return total if train.max_steps is None else max(self.step, min(total, train.max_steps))

    def facts(self) -> Facts:
        """What only a rank can know of the run."""
        return Facts(
            time=time.time(),
            train_samples=self.samples,
            eval_samples=len(self.task.eval),  # type: ignore[arg-type]
            steps_per_epoch=steps_per_epoch(self.samples, *self._batching()),
            total_steps=self.total_steps,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            backend=self.plan.backend,
            start_step=self.step,
            versions=_versions(),
            notices=self.notices,
        )

    def run(self) -> None:
        """Train to the end or to a stop; says everything through the reporter."""
        self._enter("training")
        self.meter.begin()
        stopped = False
        while not stopped and self.step < self.total_steps:
            stopped = self._train_epoch()
        self.meter.flush()
        if stopped and self.reporter.save_at_stop:
            self._save()
        elif not stopped:
            self._evaluate()
            self._save()
        left_early = stopped and self.step < self.total_steps
        self.reporter.say(
            Finished(time=time.time(), rank=self.world.rank, step=self.step, stopped=left_early)
        )

    def _train_epoch(self) -> bool:
        """The rest of the current epoch; True when the run is to stop."""
        order = self._order()
        batches = self.batches.epoch(self.epoch, order)
        for index in range(order.steps):
            total = order.total(index)
            self._train_step(batches, order.counts(index, self.world.rank), total)
            self.offset += total
            epoch_ends = index + 1 == order.steps
            if epoch_ends:
                self.epoch, self.offset = self.epoch + 1, 0
            if not self.reporter.goes_on(self.step):
                return True
            if self.step >= self.total_steps:
                break
            self._pause(epoch_ends)
        return False

    def _train_step(self, batches: Iterator[Any], counts: list[int], total: int) -> None:
        mark, last = self.clock.mark, len(counts) - 1
        for index, count in enumerate(counts):
            batch = next(batches)
            mark("data")
            alone = index < last
            with self.strategy.without_sync(self.wrapped) if alone else nullcontext():
                with self.precision.autocast():
                    loss = self.task.loss(self.callable, batch)
                mark("forward")
                self.precision.scaled(loss * self.strategy.weight(count, total)).backward()
            self.meter.loss(loss.detach(), count)
            if alone:
                mark("backward")
        self.strategy.reduce(self.model, self.clock)
        rate = self.rate(self.step)
        set_rate(self.optimizer, rate)
        skipped = self.precision.step(self.optimizer, self.parameters, self.config.train.clip_norm)
        self.optimizer.zero_grad()
        mark("optimizer")
        self.step += 1
        self.meter.step(self.epoch, self.step, rate, skipped)

    def _pause(self, epoch_ends: bool) -> None:
        """Leave training for what is due; neither evaluation nor checkpoint is in a window."""

        def is_due(section: Eval | Checkpoint) -> bool:
            by_step = section.every_steps and self.step % section.every_steps == 0
            by_epoch = section.every_epochs and self.epoch % section.every_epochs == 0
            return bool(by_step or (epoch_ends and by_epoch))

        evaluation, saving = is_due(self.config.eval), is_due(self.config.checkpoint)
        if not (evaluation or saving):
            return
        self.meter.flush()
        if evaluation:
            self._evaluate()
        if saving:
            self._save()
        self._enter("training")
        self.meter.begin()

    def _evaluate(self) -> None:
        if self.evaluated_at == self.step:
            return
        self._enter("evaluating")
        began = time.perf_counter()
        self.strategy.sync_buffers(self.model)
        rank, world = self.world.rank, self.world
        batch_size = self.config.eval.batch_size or max(1, self.plan.batch[rank])
        samples, metrics = evaluate(
            self.task,
            self.strategy.for_evaluation(self.model, self.wrapped),
            evaluation_batches(
                self.task,
                self.config.data,
                batch_size,
                rank,
                world.size,
                self.plan.loader_workers[rank],
                self.mover,
            ),
            self.precision,
            world,
        )
        self.evaluated_at = self.step
        self.is_best = self._improves(metrics)
        if world.leads:
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

    def _improves(self, metrics: dict[str, Metric]) -> bool:
        metric = metrics.get(self.config.checkpoint.best or self.task.best)
        value = None if metric is None else metric.value
        if value is None:
            return False
        larger = self.task.best_is == "max"
        better = self.best is None or (value > self.best if larger else value < self.best)
        self.best = value if better else self.best
        return better

    def _save(self) -> None:
        if self.config.checkpoint.keep == 0 or self.saved_at == self.step:
            return
        self._enter("saving")
        began = time.perf_counter()
        self.strategy.sync_buffers(self.model)
        own = {
            "random": checkpoint.random_state(self.world.device),
            "strategy": self.strategy.state(),
        }
        everyone = checkpoint.gathered(own, self.world)
        self.saved_at = self.step
        if not self.world.leads:
            return
        best = self.evaluated_at == self.step and self.is_best
        path = self.checkpoints.save({**self._state(), "ranks": everyone}, best)
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
            "best": self.best,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
            "world_size": self.world.size,
            "config": self.config.to_toml(),
        }

    def _load(self, path: str) -> dict[str, Any]:
        """Take everything over from a checkpoint; gives what belongs to this rank alone."""
        content = checkpoint.load(path)
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.precision.load_state_dict(content["precision"])
        self.step, self.epoch, self.offset = content["step"], content["epoch"], content["offset"]
        self.best = content["best"]
        if content["world_size"] != self.world.size:
            self.notices.append(
                f"goes on with {self.world.size} ranks from a checkpoint of "
                f"{content['world_size']}: the same samples in each step, other random numbers"
            )
            return {}
        own: dict[str, Any] = content["ranks"][self.world.rank]
        return own

    def _enter(self, phase: str) -> None:
        self.reporter.say(
            Phase(time=time.time(), rank=self.world.rank, phase=phase, step=self.step)  # type: ignore[arg-type]
        )


def _versions() -> dict[str, str]:
    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found
