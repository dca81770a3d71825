"""Presets verified one after another, each in a run of its own whose record does not stay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from runners.config import ONE_PROCESS, RunConfig
from runners.connecting import Endpoint
from runners.errors import ConfigError, DistrainError
from runners.launchers import environment
from runners.plan import one_of_many
from runners.presets import load_preset
from runners.processes import mark_as_owner
from runners.record import Record
from runners.runs import Run, check, launch
from runners.state import is_supervised
from runners.verification import FOLDER, RESULT, STEPS, TAP
from runners.verification.report import Report, Verdict

EVALUATED = 101  # samples at most: a prime, so that ranks have unequal shares
POLL_S, SEEN_OFF_S = 0.1, 0.02


class Case(NamedTuple):
    """A preset on one number of ranks; `about` is its report before there are any checks."""

    config: RunConfig
    about: Report


def verify(
    presets: Iterable[str],
    *,
    changes: dict[str, Any] | None = None,
    ranks: Sequence[int] = (),
) -> Iterator[Report]:
    """Verify presets, named or files, one after another, with dotted keys changed: each on its own
    devices or, with `ranks`, on so many CPU processes. Gives each report once it is there; raises
    ConfigError before anything is started.
    """
    wanted = [
        case for name in presets for case in cases(name, load_preset(name, changes or {}), ranks)
    ]
    return Verification().reports(wanted)


def cases(name: str, config: RunConfig, ranks: Sequence[int] = ()) -> list[Case]:
    """What is to be verified of a config; raises ConfigError where it cannot run here."""
    return [_case(name, each) for each in _at_sizes(_short(config), ranks)]


def usable(
    names: Iterable[str],
    on_unusable: Callable[[str, ConfigError], None],
    *,
    changes: dict[str, Any] | None = None,
    ranks: Sequence[int] = (),
) -> list[str]:
    """The presets that can run here, changed as for `verify`; `on_unusable` hears of the others."""
    found = []
    for name in names:
        try:
            cases(name, load_preset(name, changes or {}), ranks)
        except ConfigError as error:
            on_unusable(name, error)
        else:
            found.append(name)
    return found


def _case(name: str, config: RunConfig) -> Case:
    plan = one_of_many(check(config))
    about = Report(
        preset=name,
        strategy=config.strategy,
        launcher=config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
    )
    return Case(config, about)


def _at_sizes(config: RunConfig, ranks: Sequence[int]) -> Iterator[RunConfig]:
    if not ranks or config.strategy in ONE_PROCESS:
        yield config
        return
    for size in ranks:
        yield config.with_changes({"devices": f"cpu:{size}"})


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


class _StoppedError(Exception):
    """Nobody waits for the reports any more."""


class Verification:
    """Goes through cases. `stop`, which any thread may call, ends the run or the comparison that
    is under way, and with it the reports.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def reports(self, cases: Iterable[Case]) -> Iterator[Report]:
        """The report of each case, once it is there."""
        with (
            tempfile.TemporaryDirectory(prefix="distrain-verify-") as folder,
            suppress(_StoppedError),
        ):
            for case in cases:
                yield self._report(case, Path(folder))

    def _report(self, case: Case, folder: Path) -> Report:
        config, about = case
        self._go_on_after(0)
        try:
            run = launch(
                config, name=about.preset, runs_dir=folder, environment=mark_as_owner() | {TAP: "1"}
            )
            self._wait_for(run)
            return structs.replace(about, **structs.asdict(self._verdict(run.record)))
        except DistrainError as error:
            return structs.replace(about, problem=str(error))

    def _go_on_after(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    def _wait_for(self, run: Run) -> None:
        try:
            while run.is_live:
                self._go_on_after(POLL_S)
        except BaseException:
            with suppress(DistrainError):  # it has ended meanwhile
                run.stop(now=True)
            raise
        finally:  # nobody writes into a folder that goes
            while is_supervised(run.record.state):
                time.sleep(SEEN_OFF_S)

    def _verdict(self, record: Record) -> Verdict:
        """What a process with torch says of a run's steps; raises DistrainError."""
        if record.status != "completed":
            raise DistrainError(f"the run {record.status}: {record.state.reason}")
        code, said = self._judge(record)
        result = record.dir / FOLDER / RESULT
        if code or not result.exists():
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            raise DistrainError(f"the reference failed: {last[0]}")
        return msgspec.json.decode(result.read_bytes(), type=Verdict)

    def _judge(self, record: Record) -> tuple[int, str]:
        """Its exit code, and what it said."""
        plan = record.state.plan
        assert plan is not None, "a run that was launched has a plan"
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "runners.verification.judge", str(record.dir)],
            env=environment(record.config, plan, record.dir, Endpoint("")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        _, said = process.communicate(timeout=POLL_S)
                        return process.returncode, said
                    self._go_on_after(0)
            except BaseException:
                process.kill()
                raise
