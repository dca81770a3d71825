"""Checks a task before and in the first step, so that a mistake in it ends the run at once.

The first evaluation may be an epoch away, so one batch is evaluated before training. That changes
nothing: random numbers, modules with their buffers and attributes, and the state of the task and
its data are afterwards as they were. All errors are TaskErrors or ConfigErrors of one sentence,
with the place in the user's file where there is one.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import default_collate

from distrain.models.errors import TaskError
from distrain.models.metric_state import MetricState, compute, is_metric_state, read_state
from distrain.models.places import place_of
from distrain.models.task import Sums, Task, collate_of
from distrain.models.values import describe, to_number
from distrain.runners.protocol.events import Metric, Notice
from distrain.runners.training.data_check import check_data, content_of, has_objects
from distrain.runners.training.evaluation import (
    SUMS_FORM,
    derive,
    in_evaluation_mode,
    other_names,
    require_pairs,
)
from distrain.runners.training.loader_check import require_picklable
from distrain.runners.training.loss_check import check_first_loss
from distrain.runners.training.module_state import unchanged_modules
from distrain.runners.training.random_state import get_random_state, set_random_state
from distrain.runners.training.state_copy import copy_task
from distrain.runners.training.trainer import Training

MEAN_TOLERANCE = 1e-3  # relative: a "sum" that comes this close to the mean of its parts is one
SUM_TOLERANCE = 0.1  # relative: a sum that is this far from the sum of its parts is none
REDUCTIONS = ("all_reduce", "reduce")  # a gather may be right: of features of all ranks


def check_task(run: Training) -> None:
    """Check all that can be checked before training; the first loss is checked when it is made."""
    if run.plan.loader_workers[run.world.rank] and run.config.data.worker_context != "fork":
        require_picklable(run.task, run.config.data.worker_context)
    run.state.require_loadable()
    check_data(run)
    if run.evaluation_batches is not None:
        names = _check_evaluation(run, run.evaluation_batches.first)
        _require_same_names(run, names)
    check_first_loss(run)


def _check_evaluation(run: Training, indices: Sequence[int]) -> list[str]:
    """Evaluate the first batch of this rank, and its halves to tell sums from means.

    Returns the names that the task returned: those of values that are computed from them may be
    missing where a few samples have no value.
    """
    half = len(indices) // 2
    task, shared = copy_task(run.task)
    with _unchanged(run, shared):
        batch = _make_batch(task, indices)
        if half:
            _require_all_samples(run.task, batch, indices)
        with _unchanged_weights(run):
            whole, found = _evaluate(run, task, batch)
        values = _read_states(run, found)
        returned = sorted(whole | values)
        names = _metric_names(task, whole, values)
        if names is not None:
            run.best.require(names)
        if half:
            pieces = [indices[:half], indices[half:]]
            try:
                halves = []
                for piece in pieces:
                    task, _ = copy_task(run.task)
                    sums, found = _evaluate(run, task, _make_batch(task, piece))
                    halves.append(sums)
                    _reset_states(found)
            except TaskError:
                raise
            except Exception:  # a task may need whole batches, which evaluations have
                return returned
            _require_sums(task, whole, halves, [half, len(indices) - half])
    return returned


def _require_same_names(run: Training, names: Sequence[str]) -> None:
    """Raise TaskError, on at least one rank, if ranks have different metrics.

    Evaluations would add up numbers of different metrics, or wait for each other. A rank whose own
    check has failed is missing here as it would be in the first step.
    """
    checksum = zlib.crc32("\0".join(names).encode("utf-8", "surrogatepass"))
    if not run.world.is_equal_on_ranks(checksum):
        problem = f"{place_of(run.task.metrics)} returned other names on other ranks than "
        raise TaskError("task.name", f"{problem}{', '.join(names)} on rank {run.world.rank}")


def _make_batch(task: Task, indices: Sequence[int]) -> Any:
    """Return a batch of evaluation samples, which this process reads. Raises TaskError."""
    dataset: Any = task.eval
    fetch = getattr(dataset, "__getitems__", None)
    samples = fetch(indices) if fetch else [dataset[index] for index in indices]
    collate = collate_of(task) or default_collate
    batch = collate(samples)
    if batch is None:
        raise TaskError(
            "task.name", f"{place_of(collate)} must return a batch, but it returned None"
        )
    return batch


def _require_all_samples(task: Task, batch: Any, indices: Sequence[int]) -> None:
    """Raise TaskError where a batch is the same as that of its first sample alone."""
    task, _ = copy_task(task)
    try:
        content, of_first = content_of(batch), content_of(_make_batch(task, indices[:1]))
    except Exception:  # it may need several samples, or return tensors without plain bytes
        return
    if content and content == of_first and not has_objects(batch):
        problem = f"{place_of(collate_of(task) or default_collate)} must return a batch of all "
        problem += f"samples: of {len(indices)} samples it returned the same as of the first alone"
        raise TaskError("task.name", problem)


def _evaluate(run: Training, task: Task, batch: Any) -> tuple[dict[str, tuple[float, float]], Sums]:
    """Return sums and counts over a batch, in this process alone, and what they are from."""
    batch = run.mover.move_now(task, batch)
    model = run.strategy.for_evaluation(run.model, run.wrapped)
    with (
        torch.no_grad(),
        in_evaluation_mode(model),
        run.precision.autocast(),
        _without_reductions(task),
    ):
        returned = task.metrics(model, batch)
    return _read_sums(task, returned), returned


@contextmanager
def _without_reductions(task: Task) -> Iterator[None]:
    """Raise TaskError if the block, which is `metrics`, reduces over ranks by itself."""

    def refuse(name: str, *_: Any, **__: Any) -> None:
        problem = f"{place_of(task.metrics)} must not call {name}() of torch.distributed: "
        raise TaskError("task.name", f"{problem}the run adds up the sums of all ranks")

    before = {name: getattr(dist, name) for name in REDUCTIONS if hasattr(dist, name)}
    for name in before:
        setattr(dist, name, partial(refuse, name))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(dist, name, function)


def _read_states(run: Training, returned: Sums) -> dict[str, dict[str, float]]:
    """Return the values of each metric object by their names, and reset the objects.

    There are none where a few samples have no value. A notice names a metric that fails with them,
    which may be right with more. Raises TaskError where it must fail with all samples, too.
    """
    values: dict[str, dict[str, float]] = {}
    for name, metric in returned.items():
        if not is_metric_state(metric):
            continue
        try:
            values[name] = compute(name, metric, [read_state(metric)])
        except TaskError:
            raise
        except Exception as error:
            if not isinstance(error, ArithmeticError | ValueError):
                _report_failure(run, name, metric, error)
            values[name] = {}
    _reset_states(returned)
    return values


def _reset_states(returned: Sums) -> None:
    for metric in returned.values():
        if is_metric_state(metric):
            metric.reset()


def _report_failure(run: Training, name: str, metric: MetricState, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"
    failed = f"{place_of(metric.compute)}, of the metric {name}, failed"
    if isinstance(error, NameError | ImportError | NotImplementedError):
        raise TaskError("task.name", f"{failed}: {reason}") from error
    if run.world.is_leader:
        text = f"{failed} with the first few samples; an evaluation has all of them: {reason}"
        run.reporter.send(Notice(time=time.time(), rank=run.world.rank, text=text))


def _read_sums(task: Task, returned: Sums) -> dict[str, tuple[float, float]]:
    place = place_of(task.metrics)
    if not isinstance(returned, Mapping) or not returned:
        raise TaskError(
            "task.name", f"{place} must return {SUMS_FORM}, but it returned {describe(returned)}"
        )
    for name in returned:
        if not (isinstance(name, str) and name):
            problem = f"{place} must return {SUMS_FORM}, but a name is {name!r}, not text"
            raise TaskError("task.name", problem)
    pairs: dict[str, Any] = {
        name: pair for name, pair in returned.items() if not is_metric_state(pair)
    }
    require_pairs(task, pairs)
    sums = {}
    for name, pair in pairs.items():
        total, count = map(to_number, pair)
        assert total is not None
        assert count is not None
        if not (count >= 0 and count.is_integer()):
            problem = f"the count of {name} must be a whole number, but {place} returned {count:g}"
            raise TaskError("task.name", problem)
        sums[name] = total, count
    return sums


def _require_sums(
    task: Task,
    whole: Mapping[str, tuple[float, float]],
    halves: Sequence[Mapping[str, tuple[float, float]]],
    sizes: Sequence[int],
) -> None:
    """Raise TaskError where a metric of a batch is the mean of its halves, and not their sum.

    A value that is the same for each batch, and counted once for it, is right: its mean is itself.
    """
    if any(half.keys() != whole.keys() for half in halves):
        raise other_names(task)
    for name, (total, count) in whole.items():
        if all(half[name] == (total, count) for half in halves) and count == 1:
            continue
        parts = [half[name][0] for half in halves]
        mean = sum(part * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes)
        scale = max(abs(total), *map(abs, parts))
        is_mean = abs(total - mean) <= MEAN_TOLERANCE * scale
        if is_mean and abs(total - sum(parts)) > SUM_TOLERANCE * scale:
            problem = f"{name} of {place_of(task.metrics)} is a mean: return the sum over the batch"
            raise TaskError("task.name", f"{problem}, which is added up and divided once")


def _metric_names(
    task: Task,
    sums: Mapping[str, tuple[float, float]],
    values: Mapping[str, Mapping[str, float]],
) -> list[str] | None:
    """Return the names of all metrics, with those that are derived.

    None where they are not known, because a few samples have no value.
    """
    metrics = {name: Metric.of(total, int(count)) for name, (total, count) in sums.items()}
    for found in values.values():
        metrics |= {name: Metric.of(value, 1) for name, value in found.items()}
    is_defined = all(values.values()) and all(each.value is not None for each in metrics.values())
    try:
        derived = derive(task, metrics) if all(values.values()) else {}
    except TaskError:
        raise
    except KeyError as error:
        problem = f"{place_of(task.derived)} failed: KeyError: {error}; the means are "
        raise TaskError("task.name", problem + ", ".join(sorted(metrics))) from None
    except (ArithmeticError, ValueError):
        return None
    return sorted(metrics | derived) if is_defined else None


@contextmanager
def _unchanged_weights(run: Training) -> Iterator[None]:
    """Raise TaskError if the block, an evaluation, changes weights that are trained."""

    def norms() -> list[str]:
        return [f"{float(each.detach().norm())}" for each in run.parameters]  # NaN equals NaN

    before = norms()
    yield
    if norms() != before:
        problem = f"{place_of(run.task.metrics)} must not change the weights of the model"
        raise TaskError("task.name", problem)


@contextmanager
def _unchanged(run: Training, shared: Sequence[nn.Module]) -> Iterator[None]:
    """Leave random numbers, the model and these modules behind the block as they were before."""
    device = run.world.device
    state = get_random_state(device)
    with unchanged_modules([run.model, *shared]):
        yield
    set_random_state(state, device)
