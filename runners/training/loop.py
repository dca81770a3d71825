"""The one training loop, for every strategy, launcher and precision."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from distrain.runners.config.training_sections import CheckpointConfig, EvalConfig
from distrain.runners.protocol.events import Finished
from distrain.runners.strategies.base import NO_CONTEXT
from distrain.runners.training.batch_plan import StepShare
from distrain.runners.training.optim import set_rate
from distrain.runners.training.task_check import check_task
from distrain.runners.training.trainer import Training


def train(run: Training) -> None:
    """Train to the last step or to a requested stop; report through the run's reporter."""
    if run.step < run.total_steps:
        check_task(run)
    object.__setattr__(run.task, "on_log", run.log)  # a task may be a frozen dataclass
    run.enter("training")
    run.meter.begin()
    goes_on = True
    # A stop in the step of an evaluation has replaced it.
    if run.state.is_evaluation_pending and _is_due(run.config.eval, run, run.offset == 0):
        pause(run, epoch_ends=run.offset == 0)
    while goes_on and run.step < run.total_steps and not run.patience.is_exhausted:
        goes_on = train_epoch(run)
    run.meter.flush()
    run.notice_missing_average()
    if goes_on:
        run.evaluate()
    if goes_on or run.reporter.save_at_stop:
        run.state.save()
    is_early = run.step < run.total_steps
    run.reporter.send(
        Finished(
            time=time.time(),
            rank=run.world.rank,
            step=run.step,
            stopped=is_early and not goes_on,
            reason=run.patience.reason if is_early and goes_on else "",
        )
    )
    run.end_loading()


def train_epoch(run: Training) -> bool:
    """Train to the end of the current epoch; return False if the run must stop."""
    plan = run.batch_plan()
    batches = run.batches.epoch(run.epoch, plan)
    within_epochs = bool(run.config.eval.every_steps or run.config.checkpoint.every_steps)
    for number, share in enumerate(plan.shares(run.world.rank), 1):
        _step(run, batches, share)
        if number == 1:
            run.require_same_parameters()
        run.offset += share.total
        epoch_ends = number == plan.steps
        if epoch_ends:
            run.epoch += 1
            run.offset = 0
        goes_on = run.reporter.should_continue(run.step)
        if run.step >= run.total_steps:
            return True  # complete: a stop comes too late
        if not goes_on:
            return False
        if epoch_ends or within_epochs:
            pause(run, epoch_ends)
            if run.patience.is_exhausted:
                return True
    return True


def _step(run: Training, batches: Iterator[Any], share: StepShare) -> None:
    """Make one optimizer step with this rank's share of the samples."""
    if run.turns:
        run.begin_turn(run.turns)
    _compute_gradients(run, batches, share)
    _update(run)


def _compute_gradients(run: Training, batches: Iterator[Any], share: StepShare) -> None:
    """Compute the gradients of the mean loss over the samples of all ranks."""
    total, _, counts = share
    mark = run.clock.mark
    last = len(counts) - 1
    weights: Sequence[float] = counts
    total_weight: float = total
    if run.weighs_batches:
        ahead = [next(batches) for _ in counts]
        mark("data")
        weights, total_weight = run.weigh(ahead, counts)
        batches = iter(ahead)
        mark("comm")
    for index, count in enumerate(counts):
        batch = next(batches)
        mark("data")
        with NO_CONTEXT if index == last else run.strategy.without_sync(run.wrapped):
            with run.precision.autocast():
                loss = run.loss(batch)
            mark("forward")
            weight = run.strategy.weight(weights[index], total_weight)
            # An even share needs no weight, and the product would add two kernels to each step.
            run.precision.scale_loss(loss if weight == 1 else loss * weight).backward()
        counted = weights[index] / total_weight * total if run.weighs_batches else None
        run.meter.add_loss(loss, count, counted)
        if index < last:
            mark("backward")
    if any(each.requires_grad for each in run.frozen.values()):
        run.train_unfrozen()
    run.strategy.reduce(run.model, run.clock)
    if run.turns:
        run.turns.remove_other_gradients()


def _update(run: Training) -> None:
    """Update the weights and their average with the gradients, and end the step."""
    rate = run.rate(run.step)
    set_rate(run.optimizer, rate)
    with run.strategy.stepping():
        skipped = run.precision.step(run.optimizer, run.parameters, run.config.train.clip_norm)
    run.optimizer.zero_grad()
    run.step += 1
    if run.average:
        run.average.update(run.step, skipped)
    run.clock.mark("optimizer")
    run.meter.end_step(run.epoch, run.step, rate, skipped, run.precision.norm)


def pause(run: Training, epoch_ends: bool) -> None:
    """Evaluate and save if that is due; the time of neither is part of a window."""
    evaluation_due = _is_due(run.config.eval, run, epoch_ends)
    checkpoint_due = _is_due(run.config.checkpoint, run, epoch_ends)
    if not (evaluation_due or checkpoint_due):
        return
    run.require_same_parameters()
    run.meter.flush()
    if evaluation_due:
        run.evaluate()
    if checkpoint_due:
        run.state.save()
    run.enter("training")
    run.meter.begin()


def _is_due(section: EvalConfig | CheckpointConfig, run: Training, epoch_ends: bool) -> bool:
    if section.every_steps and run.step % section.every_steps == 0:
        return True
    return epoch_ends and section.every_epochs > 0 and run.epoch % section.every_epochs == 0
