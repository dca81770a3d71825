"""Verification: does a way of training compute what one plain process computes?

Each preset trains a few steps as it always does; from within, `tap.py` leaves gradients, weights
and buffers. `reference.py` does the same steps in one plain process, `judge.py` compares. Torch is
left to ranks and to the judge's process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runners.config import RunConfig
from runners.errors import ConfigError, DistrainError
from runners.launchers import environment
from runners.presets import load_preset
from runners.runs import Run, check, launch

FOLDER = "verification"  # in the record
RESULT = "report.json"
TAP = "DISTRAIN_TAP"
STEPS = 3
EVALUATED = 101  # samples at most: a prime, so that ranks have unequal shares


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison after a step (0: before the first): of all tensors the one that is worst
    beside its limit. `error` and `limit` are relative; None where bits or counts are compared.
    """

    what: str
    step: int
    passed: bool
    tensor: str = ""
    error: float | None = None
    limit: float | None = None
    words: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Checks in the order of the training; `declared` is what cannot be equal by nature, and how
    it was checked instead, `tolerance` where the limits come from.
    """

    checks: list[Check] = []
    declared: list[str] = []
    tolerance: str = ""


class Report(Verdict, frozen=True, kw_only=True):
    """The verdict on one preset on one number of ranks; `problem` is why there is none."""

    preset: str
    strategy: str
    launcher: str
    precision: str
    world_size: int
    devices: list[str] = []
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and all(each.passed for each in self.checks)

    @property
    def first(self) -> Check | None:
        """The first check that failed."""
        return next((each for each in self.checks if not each.passed), None)

    @property
    def worst(self) -> Check | None:
        """The check that is nearest to its limit."""
        measured = [each for each in self.checks if each.limit]
        return max(measured, key=lambda each: (each.error or 0) / (each.limit or 1), default=None)


def verify(
    presets: Iterable[str],
    *,
    changes: dict[str, Any] | None = None,
    ranks: Sequence[int] = (),
) -> Iterator[Report]:
    """Verify presets one after another, each on its own devices or, with `ranks`, on so many CPU
    processes; raises ConfigError before anything is started.
    """
    wanted = [
        (name, config)
        for name in presets
        for config in _at_sizes(load_preset(name, changes or {}), ranks)
    ]
    for _, config in wanted:
        check(config)
    with tempfile.TemporaryDirectory(prefix="distrain-verify-") as folder:
        for name, config in wanted:
            yield _verified(name, config, Path(folder))


def usable(names: Iterable[str], on_unusable: Callable[[str, ConfigError], None]) -> list[str]:
    """The presets that can run here; `on_unusable` hears of the others."""
    found = []
    for name in names:
        try:
            check(_short(load_preset(name)))
        except ConfigError as error:
            on_unusable(name, error)
        else:
            found.append(name)
    return found


def _at_sizes(config: RunConfig, ranks: Sequence[int]) -> Iterator[RunConfig]:
    if not ranks or config.strategy in ("single", "dp"):
        yield _short(config)
        return
    for size in ranks:
        yield _short(config.with_changes({"devices": f"cpu:{size}"}))


def _short(config: RunConfig) -> RunConfig:
    """A few steps, one evaluation, no checkpoint."""
    limit = min(config.data.eval_limit or EVALUATED, EVALUATED)
    changes = {
        "train.max_steps": STEPS,
        "train.epochs": STEPS,
        "data.eval_limit": limit,
        "eval.every_epochs": 0,
        "eval.every_steps": None,
        "checkpoint.load": None,
        "checkpoint.keep": 0,
    }
    return config.with_changes(changes)


def _verified(name: str, config: RunConfig, folder: Path) -> Report:
    run = launch(config, name=name, runs_dir=folder, environment={TAP: "1"})
    try:
        run.wait()
    except BaseException:
        run.stop(now=True)
        raise
    plan = run.record.state.plan
    assert plan is not None, "a run that was launched has a plan"
    about = Report(
        preset=name,
        strategy=config.strategy,
        launcher=config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
    )
    try:
        return msgspec.structs.replace(about, **_judged(run))
    except DistrainError as error:
        return msgspec.structs.replace(about, problem=str(error))


def _judged(run: Run) -> dict[str, Any]:
    """What a process with torch says of a run's steps; raises DistrainError."""
    record = run.record
    if record.status != "completed":
        raise DistrainError(f"the run {record.status}: {record.state.reason}")
    plan = record.state.plan
    assert plan is not None
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runners.verification.judge", str(record.dir)],
        env=environment(record.config, plan, record.dir, ""),
        capture_output=True,
        text=True,
    )
    result = record.dir / FOLDER / RESULT
    if done.returncode or not result.exists():
        said = done.stderr.strip().splitlines()
        raise DistrainError(f"the reference failed: {said[-1] if said else 'it said nothing'}")
    return msgspec.structs.asdict(msgspec.json.decode(result.read_bytes(), type=Verdict))
