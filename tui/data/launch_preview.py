"""Preview a launch: the devices, ranks, batches, steps and estimated time of a config.

Reads the devices, the files of the data and the runs folder, so call it from a thread.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from distrain.runners import formatting
from distrain.runners.checks import check
from distrain.runners.config.plan import Plan
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.sweep import Axis, combine
from distrain.runners.config.training_sections import DataConfig
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.records.reader import Record
from distrain.runners.records.run_ids import short_id
from distrain.runners.records.timeseries.series import STEPS
from distrain.runners.training.batch_plan import steps_per_epoch

DIGITS = 1797
TRAINING_SAMPLES = {"mnist": 60_000, "cifar10": 50_000}
SYNTHETIC_SAMPLES = 10_240
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
COUNT_S = 0.5  # longest time to count the images of a folder
LISTED_RUNS = 8  # of a sweep, by name
NAMED_DEVICES = 4  # more are named by their range
SEARCHED = 200  # newest runs that are searched for a similar one


class PastRun(NamedTuple):
    """A completed run: seconds until its first step, seconds of training, samples trained."""

    run_id: str
    startup_s: float
    training_s: float
    samples: int


class LaunchPreview(NamedTuple):
    """The preview of one config.

    `plan` is None if the config cannot be planned on these devices, `samples` is None while the
    size of the training set is unknown. `problems` are (key, sentence). Of a sweep, the keys with
    several values are `axes`, `runs` are all runs with their names, and all else is of the first.
    """

    config: RunConfig
    plan: Plan | None = None
    problems: tuple[tuple[str, str], ...] = ()
    samples: int | None = None
    past: PastRun | None = None
    axes: tuple[Axis, ...] = ()
    runs: tuple[tuple[str, LaunchPreview], ...] = ()

    @property
    def steps(self) -> tuple[int, int] | None:
        """Return the optimizer steps per epoch and of the whole run; None if unknown."""
        if self.samples is None:
            return None
        train = self.config.train
        per_epoch = steps_per_epoch(self.samples, train.batch_size, train.drop_last)
        total = per_epoch * train.epochs
        return per_epoch, total if train.max_steps is None else min(total, train.max_steps)

    @property
    def seconds(self) -> float | None:
        """Return the estimated duration, from the start-up time and rate of the similar run."""
        if self.past is None or self.samples is None or self.config.checkpoint.load:
            return None
        train = self.config.train
        per_epoch, total = self.steps or (0, 0)
        full, rest = divmod(total, max(per_epoch, 1))
        samples_of_epoch = self.samples - (
            self.samples % train.batch_size if train.drop_last else 0
        )
        share = (full * samples_of_epoch + rest * train.batch_size) / self.past.samples
        training_s = share * self.past.training_s
        if train.max_time_s is not None:
            training_s = min(training_s, train.max_time_s)
        return self.past.startup_s + training_s


class PreviewBuilder:
    """Builds previews, and remembers the number of images of each folder."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._counted: dict[str, int | None] = {}

    def build(self, config: RunConfig, axes: tuple[Axis, ...] = ()) -> LaunchPreview:
        """Return the preview of a config or sweep, with all problems that keep it from running."""
        first = self._build_one(config)
        if not axes:
            return first
        try:
            runs = combine(config, axes, check)
        except ConfigError as error:
            return first._replace(axes=axes, problems=tuple(error.problems))
        previews = tuple((run.name, self._build_next(run.config, first)) for run in runs)
        return first._replace(axes=axes, runs=previews)

    def _build_next(self, config: RunConfig, first: LaunchPreview) -> LaunchPreview:
        """Return the preview of another run of a sweep, whose config has been checked."""
        plan = plan_here(config)
        past = first.past
        if first.plan is None or _similarity_key(config, plan) != _similarity_key(
            first.config, first.plan
        ):
            past = newest_similar_run(self._runs_dir, config, plan)
        samples = None if config.is_script else self._samples(config.data)
        return LaunchPreview(config, plan, samples=samples, past=past)

    def _build_one(self, config: RunConfig) -> LaunchPreview:
        problems: list[tuple[str, str]] = []
        try:
            plan: Plan | None = check(config)
        except ConfigError as error:
            problems = error.problems
            plan = _plan(config)
        return LaunchPreview(
            config=config,
            plan=plan,
            problems=tuple(problems),
            samples=None if config.is_script else self._samples(config.data),
            past=newest_similar_run(self._runs_dir, config, plan) if plan else None,
        )

    def _samples(self, data: DataConfig) -> int | None:
        known = training_samples(data)
        if data.name == "imagefolder" and data.root:
            if data.root not in self._counted:
                self._counted[data.root] = _images_in(Path(os.path.expanduser(data.root), "train"))
            known = self._counted[data.root]
        if known is None or data.train_limit is None:
            return known
        return min(known, data.train_limit)


def _plan(config: RunConfig) -> Plan | None:
    try:
        return plan_here(config)
    except ConfigError:
        return None


def training_samples(data: DataConfig) -> int | None:
    """Return the size of a built-in training set; None if it depends on files."""
    if data.name == "digits":
        holdout = data.args.get("holdout", 0.2)
        fits = isinstance(holdout, float) and 0 < holdout < 1
        return DIGITS - math.ceil(holdout * DIGITS) if fits else None
    if data.name == "synthetic":
        samples = data.args.get("samples", SYNTHETIC_SAMPLES)
        return samples if isinstance(samples, int) and samples > 0 else None
    return TRAINING_SAMPLES.get(data.name)


def _images_in(folder: Path) -> int | None:
    end = time.monotonic() + COUNT_S
    count = 0
    for _, _, names in os.walk(folder):
        if time.monotonic() > end:
            return None
        count += sum(name.lower().endswith(IMAGES) for name in names)
    return count or None


# --- a similar run -----------------------------------------------------------------------------


def newest_similar_run(runs_dir: Path, config: RunConfig, plan: Plan) -> PastRun | None:
    """Return the newest completed run with the same strategy, model, data and number of devices
    of the same kind.
    """
    for record in _newest(runs_dir):
        with record:
            try:
                if _is_similar(record, config, plan) and (past := _past_run(record)):
                    return past
            except DistrainError:
                continue
    return None


def _newest(runs_dir: Path) -> Iterator[Record]:
    """Yield records, newest first: ids begin with the time."""
    try:
        folders = sorted(runs_dir.iterdir(), reverse=True)
    except OSError:
        return
    for folder in folders[:SEARCHED]:
        if os.path.isfile(folder / "run.json"):
            try:
                yield Record(folder)
            except DistrainError:
                continue


def _is_similar(record: Record, config: RunConfig, plan: Plan) -> bool:
    state = record.state
    if state.status != "completed" or state.plan is None:
        return False
    return _similarity_key(record.config, state.plan) == _similarity_key(config, plan)


def _similarity_key(config: RunConfig, plan: Plan) -> tuple[Any, ...]:
    data = (config.data.name, config.data.args)
    return config.strategy, config.model, data, plan.world_size, plan.devices[0].kind


def _past_run(record: Record) -> PastRun | None:
    state = record.state
    summary = record.summary()
    first = min((_first_step_time(record, rank) for rank in record.keys(STEPS)), default=None)
    if first is None or state.started is None or state.ended is None or not summary["samples"]:
        return None
    startup = max(first - state.started, 0.0)
    return PastRun(record.id, startup, state.ended - state.started - startup, summary["samples"])


def _first_step_time(record: Record, rank: int) -> float:
    row = next(iter(record.raw(STEPS, rank, chunk=1)))
    window = dict(zip(STEPS.fields, row, strict=True))
    return float(window["time"] - window["seconds"])


# --- texts ------------------------------------------------------------------------------------


def figures(preview: LaunchPreview) -> list[tuple[str, str]]:
    """Return all figures of a preview by label; of a sweep, those of its first run."""
    return [*_sweep_figures(preview), *_figures_of_one(preview)]


def _sweep_figures(preview: LaunchPreview) -> list[tuple[str, str]]:
    if not preview.runs:
        return []
    names = [name for name, _ in preview.runs]
    more = [f"… {len(names) - LISTED_RUNS} more"] if len(names) > LISTED_RUNS else []
    text = "; ".join([*names[:LISTED_RUNS], *more])
    return [
        ("runs", f"{len(names)}, queued as one group: {text}"),
        ("total", _total_time(preview)),
        ("first run", f"{first_run(preview)}, as follows:"),
    ]


def first_run(preview: LaunchPreview) -> str:
    """Return which of the runs of a sweep the figures describe: "lr-0.5, 1 of 4"."""
    return f"{preview.runs[0][0]}, 1 of {len(preview.runs)}"


def _total_time(preview: LaunchPreview) -> str:
    """Return how long the runs of a sweep take one after another."""
    seconds = [run.seconds for _, run in preview.runs]
    known = [each for each in seconds if each is not None]
    if len(known) < len(seconds):
        return "unknown" if not known else f"more than {formatting.duration(sum(known))}"
    return f"~{formatting.duration(sum(known))}, one after another"


def _figures_of_one(preview: LaunchPreview) -> list[tuple[str, str]]:
    plan = preview.plan
    config = preview.config
    if config.is_script:
        place = [("devices", devices(plan)), ("ranks", _ranks(plan))] if plan else []
        return [("script", config.workload), *place]
    if plan is None:
        return [("steps", _steps(preview))]
    return [
        ("devices", devices(plan)),
        ("ranks", _ranks(plan)),
        ("batch", _batch(config, plan)),
        ("micro-batch", _micro_batch(config, plan)),
        ("lr", _lr(config, plan)),
        ("precision", _precision(config, plan)),
        ("backend", "none (single process)" if plan.backend == "none" else plan.backend),
        ("threads", f"{plan.threads} per rank"),
        ("loaders", _loaders(plan)),
        ("steps", _steps(preview)),
        ("time", estimated_time(preview)),
    ]


def launch_labels(preview: LaunchPreview | None) -> list[str]:
    """Return what a launch does, "Launch on cpu:0 cpu:1", and shorter, "Launch on cpu:0–1"."""
    act = f"Queue {len(preview.runs)} runs" if preview and preview.runs else "Launch"
    if preview is None or preview.plan is None:
        return [act]
    plan = preview.plan
    labels = [device.label for device in plan.devices]
    named = plan.scheduled or len(labels) > NAMED_DEVICES
    where = devices(plan) if named else " ".join(labels)
    shorter = where if plan.scheduled else _device_range(plan)
    return [f"{act} on {where}", f"{act} on {shorter}"]


def devices(plan: Plan) -> str:
    """Return "cpu:0–3", "cuda:0–1, 2 × NVIDIA H200" or "2 nodes × 4 GPUs, allocated by Slurm"."""
    nodes = formatting.plural(plan.nodes, "node")
    if plan.scheduled:
        on_gpu = plan.devices[0].kind == "cuda"
        gpus = formatting.plural(len(plan.devices), "GPU")
        where = f"{nodes} × {gpus}" if on_gpu else f"the CPUs of {nodes}"
        return f"{where}, allocated by Slurm"
    names = [device.name for device in plan.devices if device.name]
    parts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    each = ["on each node"] if plan.nodes > 1 else []
    return ", ".join([_device_range(plan), *parts, *each])


def _device_range(plan: Plan) -> str:
    return f"{plan.devices[0].kind}:{formatting.ranges([device.index for device in plan.devices])}"


def shares(parts: list[int]) -> str:
    """Return the share of each rank: "64 per rank", "44 on ranks 0–1, 43 on rank 2"."""
    sizes = {size: [rank for rank, part in enumerate(parts) if part == size] for size in parts}
    if len(sizes) == 1:
        return f"{parts[0]:,} per rank"
    return ", ".join(f"{size:,} on {formatting.ranks(ranks)}" for size, ranks in sizes.items())


def _ranks(plan: Plan) -> str:
    text = formatting.plural(plan.world_size, "rank")
    if plan.nodes > 1:
        each = formatting.plural(plan.ranks_per_node, "rank")
        return f"{text}: {formatting.plural(plan.nodes, 'node')} × {each}"
    more = len(plan.devices) > plan.world_size
    return f"{text} with {len(plan.devices)} devices" if more else text


def _batch(config: RunConfig, plan: Plan) -> str:
    whole = formatting.count(config.train.batch_size)
    return f"{shares(plan.batch)}, {whole} in total" if plan.world_size > 1 else whole


def _micro_batch(config: RunConfig, plan: Plan) -> str:
    pieces = config.train.accumulate
    return f"{plan.micro_batch:,}, {pieces} per step" if pieces > 1 else f"{plan.micro_batch:,}"


def _lr(config: RunConfig, plan: Plan) -> str:
    if config.train.scale_lr:
        return f"{plan.lr:g} = {config.train.lr:g} × {plan.world_size}"
    return f"{plan.lr:g}" + (", not scaled" if plan.world_size > 1 else "")


def _precision(config: RunConfig, plan: Plan) -> str:
    return f"{plan.precision} (auto)" if config.precision == "auto" else plan.precision


def _loaders(plan: Plan) -> str:
    if not any(plan.loader_workers):
        return "none, ranks load their data themselves"
    return shares(plan.loader_workers)


def _steps(preview: LaunchPreview) -> str:
    train = preview.config.train
    steps = preview.steps
    if train.epochs == 0:
        return "none, evaluation only"
    if steps is None:
        return "unknown until the data is loaded"
    per_epoch, total = steps
    cut = ", limited by max_steps" if total < per_epoch * train.epochs else ""
    return f"{per_epoch:,} per epoch, {total:,} in total{cut}"


def estimated_time(preview: LaunchPreview) -> str:
    """Return "~12 s (based on ddp-x7k2)", or why there is no estimate."""
    if preview.past is None:
        return "unknown (no similar run yet)"
    if preview.seconds is None:
        return "unknown until it runs"
    return f"~{formatting.duration(preview.seconds)} (based on {short_id(preview.past.run_id)})"
