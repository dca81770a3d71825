"""Measuring one run of a round: it is launched like any other, and stopped once it has been
measured for long enough after its warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.analysis.comparison.figures import compute_figures
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.statistics import find_steady_start
from distrain.runners.bench.definition import Definition, Target
from distrain.runners.bench.state import Measurement
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import Evaluation, Phase
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.series import STEPS
from distrain.runners.runs import Run, launch

POLL_S = 0.2  # pause between two checks of a run
PAUSE_FACTOR = 50  # pause at least this many times the CPU time of a check
MIN_WINDOWS = 12  # that are needed to judge what is steady
TIMEOUT_FACTOR = 10.0  # times the seconds to measure; then the run is measured as it is
TIMEOUT_EXTRA_S = 60.0  # in addition, for compilers and the like

# Without a target a run trains until it has been measured.
ENDLESS_CHANGES = {
    "train.epochs": 2**31 - 1,
    "train.max_steps": None,
    "eval.every_epochs": 0,
    "eval.every_steps": None,
}
COMMON_CHANGES = {
    "dist.max_restarts": 0,  # a candidate whose ranks die has failed
    "slurm.requeue": False,
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": None,
    "checkpoint.keep": 0,
    "checkpoint.load": None,
    "report.skip_steps": 0,  # the warm-up is determined here
    "report.sample_s": 0.5,
}


class BenchStoppedError(Exception):
    """The bench is stopping, and so is its current run."""


class RunProgress(NamedTuple):
    """How long a run has trained after its warm-up.

    The warm-up ended after step `warm_after`. If no steady pace was found (`steady`), it is the
    first half of the run. `seconds` and `windows` are what followed.
    """

    warm_after: int
    warmup_s: float
    seconds: float
    windows: int
    steady: bool


def config_for_round(config: RunConfig, target: Target | None, number: int) -> RunConfig:
    """Return what a candidate trains in a round.

    Without a target it trains without end, evaluation or checkpoints. With one it trains until the
    target or its own last epoch. How soon the target is reached depends on the seed, so each round
    has its own seed, the same for all candidates.
    """
    changes = dict(COMMON_CHANGES)
    if target is None:
        changes |= ENDLESS_CHANGES
    else:
        changes["train.seed"] = (config.train.seed + number - 1) % 2**32
        if not (config.eval.every_epochs or config.eval.every_steps):
            changes["eval.every_epochs"] = 1
    return config.with_changes(changes)


def measure(
    definition: Definition,
    name: str,
    number: int,
    *,
    folder: Path,
    cwd: str,
    queue: bool,
    environment: Mapping[str, str],
    is_stopping: Callable[[], bool],
    on_launch: Callable[[str], None],
) -> Measurement:
    """Launch the candidate `name` for round `number`, and measure it.

    The record is written to `folder`; `cwd`, `queue` and `environment` are as for `launch`.
    `on_launch` is called with the id of the run. Raises BenchStoppedError once `is_stopping`
    returns True, and DistrainError if the run fails; no process of the run is left in any case.
    """
    began = time.time()
    target = definition.target
    config = config_for_round(definition.configs[name], target, number)
    run = launch(config, name=name, runs_dir=folder, cwd=cwd, queue=queue, environment=environment)
    on_launch(run.id)
    with run.record as record:
        try:
            _wait_until_measured(run, definition, is_stopping)
        finally:
            _end(run)
        if (error := record.state.error) is not None:
            raise DistrainError(error.message)
        progress = find_progress(record)
        figures = compute_figures(record, progress.warm_after)
        if not figures.rate:
            raise DistrainError(f"{record.id} ended before anything was measured")
        diagnosis = diagnose(record, progress.warm_after)
        return Measurement(
            candidate=name,
            round=number,
            run_id=run.id,
            rate=figures.rate,
            seconds=figures.seconds,
            warmup_s=progress.warmup_s,
            steady=progress.steady and progress.windows >= MIN_WINDOWS,
            duration_s=time.time() - began,
            phases=figures.phases,
            overlap=figures.overlap,
            host_memory=figures.host_memory,
            device_memory=figures.device_memory,
            cpu=figures.cpu,
            gpu=figures.gpu,
            other_cores=figures.other_cores,
            joules_per_sample=figures.joules_per_sample,
            seconds_to_target=seconds_to_target(target, record) if target else None,
            metrics=_last_metrics(record),
            kind=diagnosis.kind,
            diagnosis=diagnosis.sentence,
        )


def find_progress(record: Record) -> RunProgress:
    """Return where the warm-up ended. Ranks train in step, so the windows of rank 0 suffice."""
    rows = [STEPS.struct(row) for row in record.raw(STEPS, 0)]
    windows = [window for window in rows if window.samples]
    start = find_steady_start([window.seconds / window.samples for window in windows])
    first = len(windows) // 2 if start is None else start
    return RunProgress(
        warm_after=windows[first - 1].step if first else 0,
        warmup_s=sum(window.seconds for window in windows[:first]),
        seconds=sum(window.seconds for window in windows[first:]),
        windows=len(windows) - first,
        steady=start is not None,
    )


def seconds_to_target(target: Target, record: Record) -> float | None:
    """Return the time from the start of training to the end of the evaluation that reached it."""
    began = None
    for _, event in record.events(kinds=("phase",)):
        if isinstance(event, Phase) and event.phase == "training":
            began = event.time
            break
    if began is None:
        return None
    for evaluation in record.evaluations():
        if _reaches(target, evaluation):
            return evaluation.time - began
    return None


def _reaches(target: Target, evaluation: Evaluation) -> bool:
    metric = evaluation.metrics.get(target.metric)
    return metric is not None and target.is_reached_by(metric.value)


def _wait_until_measured(run: Run, definition: Definition, is_stopping: Callable[[], bool]) -> None:
    """Return once the run has been measured for long enough, reached the target, or ended."""
    rules = definition.rules
    deadline = None
    while run.attend():
        if is_stopping():
            raise BenchStoppedError
        began = time.thread_time()
        if deadline is None and run.status == "running":
            timeout_s = TIMEOUT_FACTOR * rules.seconds + TIMEOUT_EXTRA_S
            deadline = time.monotonic() + timeout_s
        if definition.target is not None:
            if _has_reached(definition.target, run.record):
                return
        else:
            progress = find_progress(run.record)
            is_long_enough = progress.seconds >= rules.seconds and progress.windows >= MIN_WINDOWS
            if is_long_enough and progress.steady:
                return
            if deadline is not None and time.monotonic() > deadline:
                return
        time.sleep(max(POLL_S, PAUSE_FACTOR * (time.thread_time() - began)))


def _has_reached(target: Target, record: Record) -> bool:
    """Return whether the target is reached. Raises DistrainError if no such metric is evaluated."""
    evaluations = record.evaluations()
    if evaluations and target.metric not in evaluations[0].metrics:
        names = ", ".join(formatting.sort_metrics(evaluations[0].metrics))
        raise DistrainError(f"the target's metric {target.metric!r} is not evaluated; use {names}")
    return seconds_to_target(target, record) is not None


def _end(run: Run) -> None:
    """Stop the run and wait for its end, which its supervisor enforces."""
    while run.is_live:
        try:
            run.stop(now=run.status != "running")
        except DistrainError:  # it is still starting, or already ending
            time.sleep(POLL_S)
            continue
        run.wait()


def _last_metrics(record: Record) -> dict[str, float | None]:
    evaluations = record.evaluations()
    if not evaluations:
        return {}
    return {name: metric.value for name, metric in evaluations[-1].metrics.items()}
