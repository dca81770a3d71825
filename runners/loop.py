"""The one training loop, for every strategy, launcher and precision."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from runners.config import Checkpoint, Eval
from runners.events import Finished
from runners.optim import set_rate
from runners.order import Share
from runners.precision import NOTHING
from runners.training import Training


def train(run: Training) -> None:
    """Train to the last step or to a stop; everything is said through the reporter."""
    run.enter("training")
    run.meter.begin()
    goes_on = True
    while goes_on and run.step < run.total_steps:
        goes_on = _epoch(run)
    run.meter.flush()
    if goes_on:
        run.evaluate()
    if goes_on or run.reporter.save_at_stop:
        run.save()
    early = run.step < run.total_steps
    run.reporter.say(Finished(time=time.time(), rank=run.world.rank, step=run.step, stopped=early))


def _epoch(run: Training) -> bool:
    """The rest of the current epoch; False when the run is to stop."""
    order = run.order()
    batches = run.batches.epoch(run.epoch, order)
    within_epochs = bool(run.config.eval.every_steps or run.config.checkpoint.every_steps)
    for left, share in zip(range(order.steps)[::-1], order.shares(run.world.rank), strict=True):
        _step(run, batches, share)
        run.offset += share.total
        epoch_ends = left == 0
        if epoch_ends:
            run.epoch, run.offset = run.epoch + 1, 0
        goes_on = run.reporter.goes_on(run.step)
        if run.step >= run.total_steps:
            return True  # complete: a stop comes too late
        if not goes_on:
            return False
        if epoch_ends or within_epochs:
            _pause(run, epoch_ends)
    return True


def _step(run: Training, batches: Iterator[Any], share: Share) -> None:
    """One optimizer step on this rank's share of its samples."""
    total, _, counts = share
    mark, last = run.clock.mark, len(counts) - 1
    for index, count in enumerate(counts):
        batch = next(batches)
        mark("data")
        with NOTHING if index == last else run.strategy.without_sync(run.wrapped):
            with run.precision.autocast():
                loss = run.task.loss(run.callable, batch)
            mark("forward")
            weight = run.strategy.weight(count, total)
            # An even share needs no weight, and the product would be two kernels of each step.
            run.precision.scaled(loss if weight == 1 else loss * weight).backward()
        run.meter.loss(loss, count)
        if index < last:
            mark("backward")
    run.strategy.reduce(run.model, run.clock)
    rate = run.rate(run.step)
    set_rate(run.optimizer, rate)
    with run.strategy.stepping():
        skipped = run.precision.step(run.optimizer, run.parameters, run.config.train.clip_norm)
    run.optimizer.zero_grad()
    mark("optimizer")
    run.step += 1
    run.meter.step(run.epoch, run.step, rate, skipped)


def _pause(run: Training, epoch_ends: bool) -> None:
    """Leave training for what is due; neither evaluation nor checkpoint is in a window."""
    evaluation = _is_due(run.config.eval, run, epoch_ends)
    saving = _is_due(run.config.checkpoint, run, epoch_ends)
    if not (evaluation or saving):
        return
    run.meter.flush()
    if evaluation:
        run.evaluate()
    if saving:
        run.save()
    run.enter("training")
    run.meter.begin()


def _is_due(section: Eval | Checkpoint, run: Training, epoch_ends: bool) -> bool:
    if section.every_steps and run.step % section.every_steps == 0:
        return True
    return epoch_ends and section.every_epochs > 0 and run.epoch % section.every_epochs == 0
