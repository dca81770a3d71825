"""Measuring one run of a round: it is launched like any other, and stopped once it has been
measured for long enough after its warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from distrain.runners import formatting
from distrain.runners.analysis.comparison.figures import compute_figures, declared_by, step_kind
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.interval import is_measured
from distrain.runners.bench.definition import Definition, Target
from distrain.runners.bench.measured_part import (
    STALL_S,
    MeasuredPart,
    Patience,
    find_measured_part,
    windows_wanted,
)
from distrain.runners.bench.state import Measurement
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import ENDLESS, Evaluation, Facts, Phase
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run, launch

POLL_S = 0.2  # pause between two checks of a run
MIN_SCRIPT_WINDOWS = 5  # of a script that ended early; fewer cannot be told from its warm-up
PAUSE_FACTOR = 50  # pause at least this many times the CPU time of a check
# Without a target a run trains until it has been measured.
ENDLESS_CHANGES = {
    "train.epochs": ENDLESS,
    "train.max_steps": ENDLESS,
    "train.max_time_s": None,
    "train.patience": None,
    "eval.every_epochs": 0,
    "eval.every_steps": None,
}
WITHOUT_CHECKPOINTS = {
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": None,
    "checkpoint.keep": 0,
    "checkpoint.load": None,
}
COMMON_CHANGES = {
    "dist.max_restarts": 0,  # a candidate whose ranks die has failed
    "slurm.requeue": False,
    "report.skip_steps": 0,  # the warm-up is determined here
    "report.sample_s": 0.5,
}


class TooShortError(DistrainError):
    """A script has ended, or a run was stopped, before its speed was measured."""


class BenchStoppedError(Exception):
    """The bench is stopping, and so is its current run."""


def config_for_round(config: RunConfig, target: Target | None, number: int) -> RunConfig:
    """Return what a candidate trains in a round.

    Without a target it trains without end, evaluation or checkpoints. With one it trains until the
    target or its own last epoch. How soon the target is reached depends on the seed, so each round
    has its own seed, the same for all candidates. A script does what it always does.
    """
    if config.is_script:
        return config.with_changes(COMMON_CHANGES)
    changes = COMMON_CHANGES | WITHOUT_CHECKPOINTS
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
    returns True, TooShortError if the run was not measured, and DistrainError if it fails; no
    process of the run is left in any case.
    """
    began = time.time()
    config = config_for_round(definition.configs[name], definition.target, number)
    run = launch(config, name=name, runs_dir=folder, cwd=cwd, queue=queue, environment=environment)
    with run.record as record:
        try:
            on_launch(run.id)
            part = _wait_until_measured(run, definition, is_stopping)
            was_stopped = part is None and run.status == "stopped"
        finally:
            _end(run)
        if was_stopped:  # by a person, who may have stopped the bench as well
            if is_stopping():
                raise BenchStoppedError
            raise TooShortError(f"its run {run.id} was stopped")
        if (error := record.state.error) is not None:
            is_raised = config.is_script and error.traceback
            raise DistrainError(f"{error.type}: {error.message}" if is_raised else error.message)
        duration_s = time.time() - began
        figures = _read_figures(run, definition, part)
        return Measurement(candidate=name, round=number, duration_s=duration_s, **figures)


def _read_figures(
    run: Run, definition: Definition, measured: MeasuredPart | None
) -> dict[str, Any]:
    """Return fields of the measurement of a run that has ended. Raises DistrainError."""
    record = run.record
    target = definition.target
    rules = None if target else definition.rules
    part = measured or find_measured_part(record, rules, has_ended=True)
    ended_early = target is None and run.status == "completed" and not part.complete
    if problem := _describe_problem(run, part):
        raise TooShortError(problem)
    figures = compute_figures(record, part.warm_after, None if target else part.until)
    if not is_measured(figures.step_rate):
        raise DistrainError(f"{record.id} ended before anything was measured")
    diagnosis = diagnose(record, part.warm_after)
    # A clock that was set back makes a time that is none.
    time_to_target = seconds_to_target(target, record) if target else None
    return {
        **asdict(figures),
        "rate": figures.rate if is_measured(figures.rate) else None,
        "run_id": run.id,
        "ended_early": ended_early,
        "declared": declared_by(record),
        "step_kind": step_kind(record),
        "warmup_s": part.warmup_s,
        "steady": part.steady and part.windows >= windows_wanted(rules),
        "seconds_to_target": time_to_target if is_measured(time_to_target) else None,
        "metrics": _last_metrics(record),
        "kind": diagnosis.kind,
        "diagnosis": diagnosis.sentence,
    }


def _describe_problem(run: Run, part: MeasuredPart) -> str:
    """Return why a script cannot be measured; empty if it can."""
    is_measured = part.windows >= MIN_SCRIPT_WINDOWS or part.complete
    if not run.record.config.is_script or is_measured:
        return ""
    has_ended = run.status == "completed"
    if not part.last_step:
        within = "" if has_ended else f" within {formatting.duration(STALL_S)}"
        return (
            f"no step of the script was observed{within}; call distrain.step() after each, or "
            "iterate over distrain.track(loader)"
        )
    steps = formatting.plural(part.last_step, "step")
    verb = "ended by itself after" if has_ended else "took"
    wanted = f"{MIN_SCRIPT_WINDOWS} reports of {run.record.config.report.window_s:g} s"
    return (
        f"the script {verb} {steps}, too few to measure its speed: {wanted} must follow its "
        "warm-up; let it train for longer"
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
    evaluations = record.evaluations()
    facts = record.state.facts
    for evaluation in evaluations:
        if _reaches(target, evaluation, facts):
            return evaluation.time - began
    return None


def _reaches(target: Target, evaluation: Evaluation, facts: Facts | None) -> bool:
    metric = evaluation.metrics.get(target.metric)
    return metric is not None and target.is_reached_by(metric.value, facts)


def _wait_until_measured(
    run: Run, definition: Definition, is_stopping: Callable[[], bool]
) -> MeasuredPart | None:
    """Wait until the run has been measured for long enough, reached the target, or ended.

    Return the part in the first case, so that later windows change nothing. Raises DistrainError
    if the run hangs.
    """
    patience = Patience(definition.rules)
    while run.attend():
        if is_stopping():
            raise BenchStoppedError
        began = time.thread_time()
        is_stalled = _check_stall(run.record)
        if definition.target is not None:
            if _has_reached(definition.target, run.record):
                return None
        elif run.status == "running":
            part = find_measured_part(run.record, definition.rules)
            is_measured = part.complete and part.steady
            if is_measured and _have_all_ranks_reached(part.until, run.record):
                return part
            if patience.is_over(part, time.monotonic()) and not is_stalled:
                return None
        time.sleep(max(POLL_S, PAUSE_FACTOR * (time.thread_time() - began)))
    return None


def _check_stall(record: Record) -> bool:
    """Return whether the run is stalled. Raises DistrainError once that has lasted too long."""
    stall = record.state.current_stall
    now = time.time()
    if stall and now - stall.since > max(STALL_S, record.config.report.stall_s):
        raise DistrainError(stall.describe(now))
    return stall is not None


def _have_all_ranks_reached(step: int, record: Record) -> bool:
    return all(window.step >= step for window in record.latest().values())


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
