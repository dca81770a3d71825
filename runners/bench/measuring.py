"""One run of a round: launched like any other, stopped once it was warm for long enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from runners import words
from runners.bench.definition import Definition, Target
from runners.bench.state import Measurement
from runners.comparison.figures import figures
from runners.config import RunConfig
from runners.diagnosis import diagnose
from runners.errors import DistrainError
from runners.events import Evaluation, Phase
from runners.record import Record
from runners.runs import Run, launch
from runners.series import STEPS
from runners.statistics import steady_from

LOOK_S = 0.2
MOST_OF_US = 50  # looking takes one part in so many of a core: the ranks need it
LEAST_WINDOWS = 12  # to tell what is steady
PATIENCE = 10.0  # times the seconds asked for, until it is taken as it is
GRACE_S = 60.0  # beyond that, for a compiler and the like

ENDLESS = {
    "train.epochs": 2**31 - 1,
    "train.max_steps": None,
    "eval.every_epochs": 0,
    "eval.every_steps": None,
}
ALWAYS = {
    "dist.max_restarts": 0,  # who dies has failed
    "slurm.requeue": False,
    "checkpoint.every_epochs": 0,
    "checkpoint.every_steps": None,
    "checkpoint.keep": 0,
    "checkpoint.load": None,
    "report.skip_steps": 0,  # the warm-up is found
    "report.sample_s": 0.5,
}


class StoppedError(Exception):
    """The bench is to end, and the run under way with it."""


class Measured(NamedTuple):
    """How far a run is: its warm-up ended after a step, and so many seconds followed. Where there
    is no `steady` pace, half of the run is taken for warm-up.
    """

    warm_after: int
    warmup_s: float
    seconds: float
    windows: int
    steady: bool


def config_of(config: RunConfig, target: Target | None, number: int) -> RunConfig:
    """What a contestant trains in a round: without end, evaluation or checkpoints, or until it is
    as good as the target, if that comes before its own end. How soon that is depends on the seed,
    so each round has its own, the same for all.
    """
    wanted = dict(ALWAYS)
    if target is None:
        wanted |= ENDLESS
    else:
        wanted["train.seed"] = (config.train.seed + number - 1) % 2**32
        if not (config.eval.every_epochs or config.eval.every_steps):
            wanted["eval.every_epochs"] = 1
    return config.with_changes(wanted)


def measure(
    definition: Definition,
    name: str,
    number: int,
    *,
    folder: Path,
    cwd: str,
    queue: bool,
    environment: Mapping[str, str],
    stopped: Callable[[], bool],
    launched: Callable[[str], None],
) -> Measurement:
    """Launch a contestant and measure it; `launched` hears the run's id.

    Raises StoppedError once `stopped` says so, DistrainError where the run fails; in each case
    no process of the run is left.
    """
    began = time.time()
    config = config_of(definition.configs[name], definition.target, number)
    run = launch(config, name=name, runs_dir=folder, cwd=cwd, queue=queue, environment=environment)
    launched(run.id)
    with run.record as record:
        try:
            _until_measured(run, definition, stopped)
        finally:
            _end(run)
        if (error := record.state.error) is not None:
            raise DistrainError(error.message)
        found = progress(record)
        figured = figures(record, found.warm_after)
        if not figured.rate:
            raise DistrainError(f"{record.id} ended before it had measured anything")
        diagnosis = diagnose(record, found.warm_after)
        return Measurement(
            contestant=name,
            round=number,
            run_id=run.id,
            rate=figured.rate,
            seconds=figured.seconds,
            warmup_s=found.warmup_s,
            steady=found.steady and found.windows >= LEAST_WINDOWS,
            took=time.time() - began,
            phases=figured.phases,
            overlap=figured.overlap,
            host_memory=figured.host_memory,
            device_memory=figured.device_memory,
            cpu=figured.cpu,
            gpu=figured.gpu,
            others=figured.others,
            joules_per_sample=figured.joules_per_sample,
            seconds_to_target=time_to(definition.target, record) if definition.target else None,
            metrics=_metrics(record),
            kind=diagnosis.kind,
            diagnosis=diagnosis.sentence,
        )


def progress(record: Record) -> Measured:
    """Where the warm-up ended, found in the windows of rank 0: ranks go in step."""
    rows = [STEPS.struct(row) for row in record.raw(STEPS, 0)]
    windows = [window for window in rows if window.samples]
    found = steady_from([window.seconds / window.samples for window in windows])
    warm = len(windows) // 2 if found is None else found
    return Measured(
        warm_after=windows[warm - 1].step if warm else 0,
        warmup_s=sum(window.seconds for window in windows[:warm]),
        seconds=sum(window.seconds for window in windows[warm:]),
        windows=len(windows) - warm,
        steady=found is not None,
    )


def time_to(target: Target, record: Record) -> float | None:
    """Seconds from the first step to the end of the evaluation that reached the target."""
    begins = (
        event.time
        for _, event in record.events(kinds=("phase",))
        if isinstance(event, Phase) and event.phase == "training"
    )
    began = next(begins, None)
    reached = (event.time for event in record.evaluations() if _reaches(target, event))
    ended = next(reached, None)
    return None if began is None or ended is None else ended - began


def _reaches(target: Target, event: Evaluation) -> bool:
    metric = event.metrics.get(target.metric)
    return metric is not None and target.reached(metric.value)


def _until_measured(run: Run, definition: Definition, stopped: Callable[[], bool]) -> None:
    wanted, record = definition.rules.seconds, run.record
    deadline = float("inf")
    while run.attend():
        if stopped():
            raise StoppedError
        began = time.thread_time()
        if record.status == "running" and deadline == float("inf"):
            deadline = time.monotonic() + PATIENCE * wanted + GRACE_S
        if definition.target is None:
            found = progress(record)
            enough = found.seconds >= wanted and found.windows >= LEAST_WINDOWS
            if (enough and found.steady) or time.monotonic() > deadline:
                return
        elif _has_arrived(definition.target, record):
            return
        time.sleep(max(LOOK_S, MOST_OF_US * (time.thread_time() - began)))


def _has_arrived(target: Target, record: Record) -> bool:
    """Raises DistrainError where it never can, as nothing of that name is evaluated."""
    first = next(iter(record.evaluations()), None)
    if first is not None and target.metric not in first.metrics:
        there = ", ".join(words.shares_first(first.metrics))
        raise DistrainError(f"no {target.metric!r} is evaluated; there is {there}")
    return time_to(target, record) is not None


def _end(run: Run) -> None:
    """Stop the run and wait until it has ended; its supervisor sees to it that it does."""
    while run.is_live:
        try:
            run.stop(now=run.record.status != "running")
        except DistrainError:  # it is starting, or ending already
            time.sleep(LOOK_S)
            continue
        run.wait()


def _metrics(record: Record) -> dict[str, float | None]:
    evaluations = record.evaluations()
    if not evaluations:
        return {}
    return {name: metric.value for name, metric in evaluations[-1].metrics.items()}
