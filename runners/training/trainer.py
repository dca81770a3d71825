"""What one rank trains with, built once from config, plan and task.

How it trains is in `loop`, and what its checkpoints keep in `training_state`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from distrain.models.build import build_task, own_parts
from distrain.models.data import length
from distrain.models.errors import TaskError
from distrain.models.hooks import misspelt_hooks
from distrain.models.metric_state import move_metrics
from distrain.models.task import Task, give_turn
from distrain.runners import strategies
from distrain.runners.config.plan import Plan
from distrain.runners.config.schema import RunConfig
from distrain.runners.distributed.cuda_timing import CudaClock
from distrain.runners.distributed.process_group import World
from distrain.runners.distributed.timing import CpuClock
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Evaluation, Facts, Notice, Phase
from distrain.runners.protocol.reporter import NullReporter, Reporter
from distrain.runners.training.average import WeightAverage, average_rule
from distrain.runners.training.batch_mover import BatchMover
from distrain.runners.training.batch_plan import BatchPlan
from distrain.runners.training.batch_statistics import recompute_statistics
from distrain.runners.training.best import BestScore, Patience
from distrain.runners.training.buffers import shapes_of
from distrain.runners.training.config_check import replaced_settings, require_fit
from distrain.runners.training.epochs import Epochs
from distrain.runners.training.evaluation import evaluate
from distrain.runners.training.loading import Batches, EvaluationBatches
from distrain.runners.training.meter import Meter
from distrain.runners.training.model_check import require_same_model
from distrain.runners.training.precision import Precision
from distrain.runners.training.random_state import seed_generators
from distrain.runners.training.task_optimizer import (
    base_rate,
    has_own_schedule,
    make_optimizer,
    make_rate,
)
from distrain.runners.training.training_state import TrainingState
from distrain.runners.training.turns import Turns
from distrain.runners.training.weights import has_weights, weights_of


class Training:
    """Model, optimizer, data and position of one rank.

    `step` counts the finished optimizer steps of the whole run, `epoch` the finished epochs, and
    `offset` the samples used of the current epoch. Raises ConfigError where task and plan do not
    fit together.
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
        self.config = config
        self.plan = plan
        self.world = world
        self.task = task
        self.reporter = reporter
        self.step = 0
        self.epoch = 0
        self.offset = 0
        self.notices = misspelt_hooks(task)
        self.epochs = Epochs(task, config)
        self.epochs.require_usable(world.size)
        self.notices += self.epochs.notices()
        require_fit(config, task, world.size)
        self._place_model()
        self._make_optimizer()
        self.precision = Precision(plan.precision, world.device)
        self.best = BestScore(config.checkpoint, task)
        self.patience = Patience(config.train.patience, BestScore(config.checkpoint, task))
        self.score: float | None = None  # of the last evaluation
        self._evaluated_at = -1
        self.state = TrainingState(self, folder)

        saved = self.state.load()
        if saved:
            self.state.restore_shared(saved)
        self.total_steps = self.epochs.total_steps(self.step, self.epoch, self.offset)
        self._wrap(resumed=saved is not None)
        if saved and self.average:
            self.state.restore_average(self.average, saved)
        self.rate = make_rate(config.train, task, self._lr, self.epochs.steps, self.total_steps)
        self._make_batches()
        self._make_meter()
        self.loss: Callable[[Any], Tensor] = partial(task.loss, self.callable)
        if saved:
            self.state.restore_own(saved)

    def _place_model(self) -> None:
        model = self.task.model.to(self.world.device)
        if self.config.train.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.config.train.sync_batchnorm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.model = model
        self.buffers_at_start = shapes_of(model)
        move_metrics(self.task, self.world.device)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
        self._at_start = {*model.parameters()}

    def _make_optimizer(self) -> None:
        config = self.config
        self.optimizer, own_rate = make_optimizer(config.train, self.task, self.model)
        self._has_own_rate = own_rate is not None
        self._lr = base_rate(config.train, self.plan, own_rate)
        self.turns = self.optimizer if isinstance(self.optimizer, Turns) else None
        if self.turns and config.strategy == "horovod":
            problem = "Horovod wraps a single optimizer, and the task has several; use ddp"
            raise ConfigError([("strategy", problem)])
        self.notices += replaced_settings(config, self.task, own_rate)

    def _wrap(self, resumed: bool) -> None:
        """Let the strategy wrap model and optimizer; all ranks then have equal weights."""
        require_same_model(self.world, self.model)
        train = self.config.train
        rule = average_rule(train, self.total_steps)
        self.average = WeightAverage(self.model, rule) if rule else None
        self.clock = CudaClock() if self.world.device.type == "cuda" else CpuClock()
        self.strategy = strategies.build(self.config, self.world)
        self.wrapped = self.strategy.wrap(self.model, self.clock)
        self.optimizer = self.strategy.optimizer(self.optimizer, self.model, resumed)
        # Compiled after wrapping: so torch.compile can split the graph at DDP's buckets.
        self.callable: nn.Module = torch.compile(self.wrapped) if train.compile else self.wrapped  # type: ignore[assignment]
        if self.average:
            self.average.restart()

    def _make_batches(self) -> None:
        config, rank = self.config, self.world.rank
        self.weighs_batches = has_weights(self.task)
        pins = config.data.pin_memory and not self.plan.loader_workers[rank]
        self.mover = BatchMover(self.task, self.world.device, config.train.channels_last, pins=pins)
        self.batches = Batches(self.task, config, self.plan, rank, self.mover)
        self.evaluation_batches = (
            EvaluationBatches(self.task, config, self.plan, rank, self.mover)
            if self.task.eval is not None
            else None
        )

    def end_loading(self) -> None:
        """End the loader processes."""
        self.batches.end()
        if self.evaluation_batches is not None:
            self.evaluation_batches.end()

    def _make_meter(self) -> None:
        report = self.config.report
        warmup_steps = min(report.skip_steps, (self.total_steps - self.step) // 2)
        self.meter = Meter(
            self.reporter,
            self.world.rank,
            self.clock,
            report.window_s,
            warmup_until=self.step + warmup_steps,
        )

    def begin_turn(self, turns: Turns) -> None:
        """Let the optimizer of the next step have its turn."""
        give_turn(self.task, turns.begin(self.step))
        self.parameters = turns.parameters

    def train_unfrozen(self) -> None:
        """Train the parameters that the task has made trainable since the start.

        Raises TaskError where optimizer or strategy were made without them.
        """
        held = {each for group in self.optimizer.param_groups for each in group["params"]}
        for name, parameter in [*self.frozen.items()]:
            if not parameter.requires_grad:
                continue
            problem = f"{name} of the model became trainable in step {self.step + 1}, and "
            if parameter not in held:
                problem += "the optimizer does not have it: let optimizer(model) or "
                problem += "parameter_groups(model) of the task return frozen parameters too"
                raise TaskError("task.name", problem)
            if not self.strategy.reduces_unfrozen:
                problem += f"{self.config.strategy} reduces only what is trainable at its start"
                raise TaskError("strategy", f"{problem}: use allreduce")
            del self.frozen[name]
            if self.turns is None:
                self.parameters.append(parameter)
            if self.average:
                self.average.include(parameter)

    def require_same_parameters(self) -> None:
        """Raise TaskError where the model has other parameters than at the start."""
        for name, parameter in self.model.named_parameters():
            if parameter not in self._at_start:
                problem = f"{name} was added to the model in training, and the optimizer does not "
                raise TaskError("task.name", problem + "have it: add it where the model is made")

    def weigh(self, batches: Sequence[Any], counts: Sequence[int]) -> tuple[list[float], float]:
        """Return the weights of this rank's micro-batches, and that of all ranks together.

        `counts` are their samples: a batch that only takes part has none, and no weight. The
        total is not zero, so that it can be divided by. Raises TaskError.
        """
        counted = [batch for batch, count in zip(batches, counts, strict=True) if count]
        own = iter(weights_of(self.task, counted))
        weights = [next(own) if count else 0.0 for count in counts]
        total = torch.tensor(math.fsum(weights), dtype=torch.float64, device=self.world.device)
        self.world.all_reduce_(total)
        return weights, float(total) or 1.0

    def batch_plan(self) -> BatchPlan:
        """Return the steps that remain of the current epoch."""
        return self.epochs.plan(self.world.size, self.offset)

    def facts(self) -> Facts:
        """Return what only a rank can know about the run."""
        is_endless = self.epochs.is_endless
        return Facts(
            time=time.time(),
            train_samples=0 if is_endless else self.epochs.samples,
            eval_samples=0 if self.task.eval is None else length(self.task.eval),
            steps_per_epoch=self.epochs.steps,
            total_steps=self.total_steps,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            backend=self.plan.backend,
            start_step=self.step,
            start_epoch=self.epoch,
            start_epoch_steps=0 if is_endless else self.batch_plan().steps,
            item=self.task.item,
            items_per_sample=float(self.task.items_per_sample),
            flops_per_sample=float(self.task.flops_per_sample),
            best=self.best.metric,
            best_is=self.best.direction,
            lr=self._lr if self._has_own_rate else 0.0,
            has_own_schedule=has_own_schedule(self.task),
            versions=_library_versions(),
            notices=self.notices,
            **own_parts(self.config.task, self.task),
        )

    def enter(self, phase: Literal["training", "averaging", "evaluating", "saving"]) -> None:
        """Report the phase that this rank begins, or its progress in it."""
        self.reporter.send(
            Phase(time=time.time(), rank=self.world.rank, phase=phase, step=self.step)
        )

    def log(self, name: str, value: Any) -> None:
        """Add a number of the current step to the curve of this name, without waiting for it."""
        self.meter.logged.add({name: value}, self.step + 1, "", False)

    @property
    def is_evaluated(self) -> bool:
        """Whether the current weights were evaluated by this process."""
        return self._evaluated_at == self.step

    def evaluate(self) -> None:
        """Evaluate the current weights; a second call at the same step does nothing.

        Nor does a call where the task has no evaluation data.
        """
        if self.is_evaluated or self.evaluation_batches is None:
            return
        began = time.perf_counter()
        self.renew_statistics()
        self.enter("evaluating")
        samples, metrics = evaluate(
            self.task,
            self.model_to_evaluate(),
            self.evaluation_batches,
            self.precision,
            self.world,
        )
        self._evaluated_at = self.step
        self.score = self.best.score_of(metrics)
        self.patience.add(self.score)
        if self.world.is_leader:
            self.reporter.send(
                Evaluation(
                    time=time.time(),
                    epoch=self.epoch,
                    step=self.step,
                    samples=samples,
                    seconds=time.perf_counter() - began,
                    metrics=metrics,
                )
            )

    def notice_missing_average(self) -> None:
        """Send a notice if the run ends before its average has begun."""
        average = self.average
        if average is None or average.has_begun or not self.world.is_leader:
            return
        text = (
            f"the run ended after step {self.step}, and the average of the weights begins with "
            f"step {average.rule.start}: evaluations and checkpoints have the weights themselves"
        )
        self.reporter.send(Notice(time=time.time(), rank=self.world.rank, text=text))

    def model_to_evaluate(self) -> nn.Module:
        """Return the module to evaluate, with the buffers of rank 0; all ranks must call this."""
        self.sync_buffers()
        if self.average:
            return self.average.model
        return self.strategy.for_evaluation(self.model, self.wrapped)

    def renew_statistics(self) -> None:
        """Compute the statistics of the average, if weights were averaged since the last time.

        It is a phase of its own: the data of its batches may take long. All ranks must call this.
        """
        if not (self.average and self.average.has_old_statistics):
            return
        self.enter("averaging")
        self.strategy.sync_buffers(self.model)
        self.average.copy_others()
        recompute_statistics(self, self.average.model)
        self.average.note_new_statistics()

    def sync_buffers(self) -> None:
        """Give model and average the buffers of rank 0; all ranks must call this."""
        self.strategy.sync_buffers(self.model)
        if self.average:
            self.average.copy_others()
            self.strategy.sync_buffers(self.average.model)


def make_training(
    config: RunConfig,
    plan: Plan,
    world: World,
    reporter: Reporter | NullReporter,
    folder: Path,
) -> Training:
    """Build the config's task and its training; random numbers start from the config's seed.

    `folder` is that of the run.
    """
    train = config.train
    torch.use_deterministic_algorithms(train.deterministic)
    seed_generators(train.seed)
    task = build_task(
        config.task,
        config.model,
        config.data,
        label_smoothing=train.label_smoothing,
        seed=train.seed,
        device=world.device,
    )
    # All ranks have the same weights, but each its own random numbers for dropout and the like.
    seed_generators(train.seed + 1 + world.rank)
    return Training(config, plan, world, task, reporter, folder)


def _library_versions() -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        versions["cudnn"] = str(torch.backends.cudnn.version())
    return versions
