"""What follows from a config on this machine: who does how much, how many steps, how long.

Looks at the devices, the data's files and the runs folder: to be asked in a thread.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runners import words
from runners.config import Data, RunConfig
from runners.errors import ConfigError, DistrainError
from runners.order import steps_per_epoch
from runners.plan import Plan, make_plan
from runners.record import Record
from runners.runs import check
from runners.series import STEPS
from runners.state import short_id

DIGITS = 1797
TRAINING_SAMPLES = {"mnist": 60_000, "cifar10": 50_000}
SYNTHETIC_SAMPLES = 10_240
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
COUNT_S = 0.5  # a folder of images that takes longer to count is not counted
SEARCHED = 200  # newest runs among which one of the same kind is looked for


class Past(NamedTuple):
    """A run that has been: seconds until its first step and from there on, samples trained."""

    run_id: str
    startup_s: float
    training_s: float
    samples: int


class Outlook(NamedTuple):
    """Of one config. `plan` is None where the devices or the combination do not allow any,
    `samples` where the size of the training set is not known yet.
    """

    config: RunConfig
    plan: Plan | None = None
    problems: tuple[tuple[str, str], ...] = ()
    samples: int | None = None
    past: Past | None = None

    @property
    def steps(self) -> tuple[int, int] | None:
        """Optimizer steps of an epoch and of the run."""
        if self.samples is None:
            return None
        train = self.config.train
        per_epoch = steps_per_epoch(self.samples, train.batch_size, train.drop_last)
        total = per_epoch * train.epochs
        return per_epoch, total if train.max_steps is None else min(total, train.max_steps)

    @property
    def seconds(self) -> float | None:
        """How long the run will take if it does as the one before it did."""
        if self.past is None or self.samples is None or self.config.checkpoint.load:
            return None
        train = self.config.train
        full, rest = divmod((self.steps or (0, 0))[1], max((self.steps or (0, 0))[0], 1))
        seen = self.samples - (self.samples % train.batch_size if train.drop_last else 0)
        share = (full * seen + rest * train.batch_size) / self.past.samples
        return self.past.startup_s + share * self.past.training_s


class Outlooks:
    """Works out outlooks; keeps what was counted."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._counted: dict[str, int | None] = {}

    def of(self, config: RunConfig) -> Outlook:
        """What follows from a config, with everything that keeps it from running here."""
        problems: list[tuple[str, str]] = []
        try:
            plan: Plan | None = check(config)
        except ConfigError as error:
            problems = error.problems
            plan = _plan(config)
        return Outlook(
            config=config,
            plan=plan,
            problems=tuple(problems),
            samples=self._samples(config.data),
            past=newest_like(self._runs_dir, config, plan) if plan else None,
        )

    def _samples(self, data: Data) -> int | None:
        known = training_samples(data)
        if data.name == "imagefolder" and data.root:
            if data.root not in self._counted:
                self._counted[data.root] = _images_in(Path(data.root).expanduser() / "train")
            known = self._counted[data.root]
        if known is None or data.train_limit is None:
            return known
        return min(known, data.train_limit)


def _plan(config: RunConfig) -> Plan | None:
    try:
        return make_plan(config)
    except ConfigError:
        return None


def training_samples(data: Data) -> int | None:
    """Size of a built-in training set, all of it; None where only its files can tell."""
    if data.name == "digits":
        holdout = data.args.get("holdout", 0.2)
        fits = isinstance(holdout, float) and 0 < holdout < 1
        return DIGITS - math.ceil(holdout * DIGITS) if fits else None
    if data.name == "synthetic":
        samples = data.args.get("samples", SYNTHETIC_SAMPLES)
        return samples if isinstance(samples, int) and samples > 0 else None
    return TRAINING_SAMPLES.get(data.name)


def _images_in(folder: Path) -> int | None:
    end, count = time.monotonic() + COUNT_S, 0
    for _, _, names in os.walk(folder):
        if time.monotonic() > end:
            return None
        count += sum(name.lower().endswith(IMAGES) for name in names)
    return count or None


# --- a run of its like -------------------------------------------------------------------------


def newest_like(runs_dir: Path, config: RunConfig, plan: Plan) -> Past | None:
    """The newest completed run of the same strategy, model, data and number of like devices."""
    for record in _newest(runs_dir):
        with record:
            try:
                if _alike(record, config, plan) and (past := _past(record)):
                    return past
            except DistrainError:
                continue
    return None


def _newest(runs_dir: Path) -> Iterator[Record]:
    """Ids begin with the time, so that the names of the folders are enough to sort them."""
    try:
        folders = sorted(runs_dir.iterdir(), reverse=True)
    except OSError:
        return
    for folder in folders[:SEARCHED]:
        if (folder / "run.json").is_file():
            try:
                yield Record(folder)
            except DistrainError:
                continue


def _alike(record: Record, config: RunConfig, plan: Plan) -> bool:
    state = record.state
    if state.status != "completed" or state.plan is None:
        return False
    return _likeness(record.config, state.plan) == _likeness(config, plan)


def _likeness(config: RunConfig, plan: Plan) -> tuple[Any, ...]:
    data = (config.data.name, config.data.args)
    return config.strategy, config.model, data, plan.world_size, plan.devices[0].kind


def _past(record: Record) -> Past | None:
    state, summary = record.state, record.summary()
    first = min((_begun(record, rank) for rank in record.keys(STEPS)), default=None)
    if first is None or state.started is None or state.ended is None or not summary["samples"]:
        return None
    startup = max(first - state.started, 0.0)
    return Past(record.id, startup, state.ended - state.started - startup, summary["samples"])


def _begun(record: Record, rank: int) -> float:
    row = next(iter(record.raw(STEPS, rank, chunk=1)))
    window = dict(zip(STEPS.fields, row, strict=True))
    return float(window["time"] - window["seconds"])


# --- in words ----------------------------------------------------------------------------------


def figures(outlook: Outlook) -> list[tuple[str, str]]:
    """Everything that follows, each under its name."""
    plan, config = outlook.plan, outlook.config
    if plan is None:
        return [("steps", _steps(outlook))]
    return [
        ("devices", devices(plan)),
        ("ranks", _ranks(plan)),
        ("batch", _batch(config, plan)),
        ("micro-batch", _micro_batch(config, plan)),
        ("rate", _rate(config, plan)),
        ("precision", _precision(config, plan)),
        ("backend", "none, there is one process" if plan.backend == "none" else plan.backend),
        ("threads", f"{plan.threads} per rank"),
        ("loaders", _loaders(plan)),
        ("steps", _steps(outlook)),
        ("length", length(outlook)),
    ]


def devices(plan: Plan) -> str:
    """ "cpu:0–3", "cuda:0–1, 2 × NVIDIA H200", "2 nodes × 4 GPUs, which Slurm gives"."""
    nodes = words.things(plan.nodes, "node")
    if plan.scheduled:
        on_gpu = plan.devices[0].kind == "cuda"
        gpus = words.things(len(plan.devices), "GPU")
        where = f"{nodes} × {gpus}" if on_gpu else f"the CPUs of {nodes}"
        return f"{where}, which Slurm gives"
    text = f"{plan.devices[0].kind}:{words.span([device.index for device in plan.devices])}"
    names = [device.name for device in plan.devices if device.name]
    parts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    each = ["on each node"] if plan.nodes > 1 else []
    return ", ".join([text, *parts, *each])


def shares(parts: list[int]) -> str:
    """Exactly who gets how much: "64 per rank", "44 on ranks 0–1, 43 on rank 2"."""
    sizes = {size: [rank for rank, part in enumerate(parts) if part == size] for size in parts}
    if len(sizes) == 1:
        return f"{parts[0]:,} per rank"
    return ", ".join(f"{size:,} on {words.ranks(ranks)}" for size, ranks in sizes.items())


def _ranks(plan: Plan) -> str:
    text = words.things(plan.world_size, "rank")
    if plan.nodes > 1:
        each = words.things(plan.ranks_per_node, "rank")
        return f"{text}: {words.things(plan.nodes, 'node')} × {each}"
    more = len(plan.devices) > plan.world_size
    return f"{text}, which drives {len(plan.devices)} devices" if more else text


def _batch(config: RunConfig, plan: Plan) -> str:
    whole = words.count(config.train.batch_size)
    return f"{shares(plan.batch)}, {whole} in all" if plan.world_size > 1 else whole


def _micro_batch(config: RunConfig, plan: Plan) -> str:
    pieces = config.train.accumulate
    return f"{plan.micro_batch:,}, {pieces} a step" if pieces > 1 else f"{plan.micro_batch:,}"


def _rate(config: RunConfig, plan: Plan) -> str:
    if config.train.scale_lr:
        return f"{plan.lr:g} = {config.train.lr:g} × {plan.world_size}"
    return f"{plan.lr:g}" + (", not scaled" if plan.world_size > 1 else "")


def _precision(config: RunConfig, plan: Plan) -> str:
    return f"{plan.precision}, by auto" if config.precision == "auto" else plan.precision


def _loaders(plan: Plan) -> str:
    if not any(plan.loader_workers):
        return "none, within the ranks"
    return shares(plan.loader_workers)


def _steps(outlook: Outlook) -> str:
    train, steps = outlook.config.train, outlook.steps
    if train.epochs == 0:
        return "none, it only evaluates"
    if steps is None:
        return "known once the data is loaded"
    per_epoch, total = steps
    cut = ", by max_steps" if total < per_epoch * train.epochs else ""
    return f"{per_epoch:,} per epoch, {total:,} in all{cut}"


def length(outlook: Outlook) -> str:
    """ "about 12.3 s, as run ddp-x7k2"."""
    if outlook.past is None:
        return "unknown, no run of its like yet"
    if outlook.seconds is None:
        return "known once it runs"
    return f"about {words.duration(outlook.seconds)}, as run {short_id(outlook.past.run_id)}"
