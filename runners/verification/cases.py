"""Verifies presets one after another, each in a run of its own whose record is deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from distrain.runners.checks import check
from distrain.runners.config.field_types import ONE_PROCESS
from distrain.runners.config.plan import require_one_host, require_training_loop
from distrain.runners.config.presets import load_preset
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.launchers.command import launcher_environment
from distrain.runners.protocol.client import ServerAddresses
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run, launch
from distrain.runners.system.processes import owner_variables
from distrain.runners.system.scratch import scratch_folder
from distrain.runners.training.tap_files import FOLDER, STEPS, TAP, draw_steps, format_steps
from distrain.runners.verification.result import (
    RESULT_FILE,
    ReferenceComparison,
    VerificationResult,
)

MAX_EVALUATED = 101  # samples: a prime, so that ranks get unequal shares
POLL_S = 0.1
COMPARISON = "distrain.runners.verification.compare"


class Case(NamedTuple):
    """A config at one world size, and its result before there are any checks."""

    config: RunConfig
    blank: VerificationResult


def verify(
    presets: Iterable[str],
    *,
    changes: dict[str, Any] | None = None,
    ranks: Sequence[int] = (),
    steps: int = STEPS,
    on_obstacle: Callable[[str], None] = lambda text: None,
) -> Iterator[VerificationResult]:
    """Verify presets one after another and yield each result.

    `presets`: names, or paths of TOML files.
    `changes`: config values by dotted key.
    `ranks`: numbers of CPU processes to verify each preset on, in place of its own devices.
    `steps`: length of each run; its first three steps, its last, and some between are compared.
    `on_obstacle`: see `Verification`.

    Raises ConfigError before anything is started if one of the presets cannot run here.
    """
    cases = [
        case
        for name in presets
        for case in make_cases(name, load_preset(name, changes or {}), ranks, steps)
    ]
    return Verification(on_obstacle).results(cases)


def make_cases(
    name: str, config: RunConfig, ranks: Sequence[int] = (), steps: int = STEPS
) -> list[Case]:
    """Return the cases of a config; raise ConfigError if it cannot run here."""
    return [
        _make_case(name, each)
        for each in _at_world_sizes(_shorten(require_training_loop(config), steps), ranks)
    ]


def select_usable(
    names: Iterable[str],
    on_unusable: Callable[[str, ConfigError], None],
    *,
    changes: dict[str, Any] | None = None,
    ranks: Sequence[int] = (),
) -> list[str]:
    """Return the presets that can run here with the arguments of `verify`; call `on_unusable`
    for each of the others.
    """
    usable = []
    for name in names:
        try:
            make_cases(name, load_preset(name, changes or {}), ranks)
        except ConfigError as error:
            on_unusable(name, error)
        else:
            usable.append(name)
    return usable


def _make_case(name: str, config: RunConfig) -> Case:
    plan = require_one_host(check(config))
    blank = VerificationResult(
        preset=name,
        strategy=config.strategy,
        launcher=config.launcher,
        precision=plan.precision,
        world_size=plan.world_size,
        devices=[device.label for device in plan.devices],
    )
    return Case(config, blank)


def _at_world_sizes(config: RunConfig, ranks: Sequence[int]) -> Iterator[RunConfig]:
    if not ranks or config.strategy in ONE_PROCESS:
        yield config
        return
    for size in ranks:
        yield config.with_changes({"devices": f"cpu:{size}"})


def _shorten(config: RunConfig, steps: int) -> RunConfig:
    """Limit a config to so many steps and one evaluation, without a checkpoint."""
    limit = min(config.data.eval_limit or MAX_EVALUATED, MAX_EVALUATED)
    changes = {
        "train.max_steps": steps,
        "train.max_time_s": None,
        "train.patience": None,
        "train.epochs": steps,
        "data.eval_limit": limit,
        "eval.every_epochs": 0,
        "eval.every_steps": None,
        "checkpoint.load": None,
        "checkpoint.keep": 0,
    }
    return config.with_changes(changes)


class _VerificationStoppedError(Exception):
    """`stop` was called."""


class Verification:
    """Runs cases one after another; any thread may call `stop`.

    `on_obstacle` is called repeatedly during a run, with why it makes no progress, or "".
    """

    def __init__(self, on_obstacle: Callable[[str], None] = lambda text: None) -> None:
        self._stopped = threading.Event()
        self._on_obstacle = on_obstacle

    def stop(self) -> None:
        """End the current run or comparison; there are no further results."""
        self._stopped.set()

    def results(self, cases: Iterable[Case]) -> Iterator[VerificationResult]:
        """Run each case and yield its result."""
        with (
            scratch_folder("verify-", for_sockets=False) as folder,
            suppress(_VerificationStoppedError),
        ):
            for case in cases:
                yield self._run(case, folder)

    def _run(self, case: Case, folder: Path) -> VerificationResult:
        config, blank = case
        self._sleep(0)
        assert config.train.max_steps is not None
        compared = format_steps(draw_steps(config.train.max_steps))
        variables = owner_variables() | {TAP: compared}
        try:
            run = launch(config, name=blank.preset, runs_dir=folder, environment=variables)
            self._wait_for(run)
            comparison = self._compare(run.record)
        except DistrainError as error:
            return structs.replace(blank, problem=str(error))
        return structs.replace(blank, **structs.asdict(comparison))

    def _sleep(self, seconds: float) -> None:
        """Raise _VerificationStoppedError if `stop` was called, at once or within this time."""
        if self._stopped.wait(seconds):
            raise _VerificationStoppedError

    def _wait_for(self, run: Run) -> None:
        try:
            while run.is_live:
                self._on_obstacle(run.record.state.obstacle)
                self._sleep(POLL_S)
        except BaseException:
            with suppress(DistrainError):  # the run has ended in the meantime
                run.stop(now=True)
            raise
        finally:  # the supervisor must not write into a folder that is being deleted
            run.wait_for_supervisor()
            self._on_obstacle("")

    def _compare(self, record: Record) -> ReferenceComparison:
        """Compare a completed run in a process with torch; raise DistrainError if it fails."""
        if record.status != "completed":
            raise DistrainError(f"the run {record.status}: {record.state.reason}")
        exit_code, stderr = self._run_comparison(record)
        path = record.dir / FOLDER / RESULT_FILE
        if exit_code or not path.exists():
            lines = stderr.strip().splitlines()
            reason = lines[-1] if lines else f"exit code {exit_code} without an error message"
            raise DistrainError(f"the comparison failed: {reason}")
        return msgspec.json.decode(path.read_bytes(), type=ReferenceComparison)

    def _run_comparison(self, record: Record) -> tuple[int, str]:
        """Return the exit code and the standard error of the comparing process.

        The processes that the task has started there end with it, as those of a run do.
        """
        plan = record.state.plan
        assert plan is not None, "a run that was launched has a plan"
        with (
            TemporaryFile("w+", errors="replace") as stderr,  # they would keep a pipe open
            subprocess.Popen(
                [sys.executable, "-P", "-m", COMPARISON, str(record.dir)],
                env=launcher_environment(record.config, plan, record.dir, ServerAddresses("")),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            ) as process,
        ):
            try:
                while process.poll() is None:
                    self._sleep(POLL_S)
            finally:
                with suppress(ProcessLookupError):  # there are none
                    os.killpg(process.pid, signal.SIGKILL)
            stderr.seek(0)
            return process.returncode, stderr.read()
