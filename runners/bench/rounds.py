"""The process of a bench: rounds in random order until every ratio is known precisely enough.

`python -m distrain.runners.bench.rounds FOLDER` starts a detached process and returns once the
bench is running; the bench does not depend on whoever started it. SIGINT and SIGTERM end the
current run and stop the bench.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.analysis.comparison.provenance_diff import describe_provenance
from distrain.runners.bench.definition import Definition
from distrain.runners.bench.folder import (
    DEFINITION,
    LOCK,
    LOG,
    QUEUE,
    RUNS,
    STATE,
    read_bench_state,
    read_definition,
    write_bench_state,
)
from distrain.runners.bench.measurement import BenchStoppedError, TooShortError, measure
from distrain.runners.bench.results import reported_by, widest_interval
from distrain.runners.bench.state import BenchState, BenchStatus, CurrentRun
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.records.state import read_state
from distrain.runners.supervision.device_queue import find_obstacles_of_any
from distrain.runners.system.files import lock_within, path_of, write_atomically
from distrain.runners.system.processes import owner_variables, run_detached, start_times
from distrain.runners.system.provenance import provenance

LOCK_S = 1.0  # another process may hold it for a moment, to check whether it is locked


class Rounds:
    """Runs one bench. Only this process writes bench.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened_folder = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self.definition: Definition = read_definition(folder)
        self.state: BenchState = read_bench_state(folder)
        self._stop_requested = False
        self._origin: dict[str, Any] = {}
        self._stamp = self._find_stamp()

    def request_stop(self, *_: Any) -> None:
        """Stop soon; a signal handler."""
        self._stop_requested = True

    def begin(self, queue: bool) -> None:
        """Record this process; measurements of an incomplete round are dropped."""
        pid = os.getpid()
        started, since_boot = start_times(pid)
        state = self.state
        self._set_state(
            status="running",
            queue=queue,
            reason="",
            ended=None,
            excluded={},
            host=socket.gethostname(),
            started=[*state.started, time.time()],
            pid=pid,
            pid_started=started,
            pid_since_boot=since_boot,
            measurements=[each for each in state.measurements if each.round <= state.rounds],
        )

    def run(self) -> None:
        """Measure all rounds, and record how the bench ended and why."""
        try:
            self._record_origin()
            reason = self._run_rounds()
            self._end("completed" if self._included() else "failed", reason)
        except BenchStoppedError:
            self._end("stopped", "stopped on request")
        except DistrainError as error:
            self._end("failed", str(error))
        except OSError as error:  # such as of a full disk
            if not self.folder.exists():
                self.folder, lost = path_of(self._opened_folder, self.folder), self.folder
                self._end("failed", f"the bench's folder {lost} was moved or deleted")
                return
            _log_traceback()
            reason = f"{error.strerror or error}; `distrain resume` continues with the next round"
            self._end("failed", reason)
        except Exception as error:
            _log_traceback()
            self._end("failed", f"{type(error).__name__}: {error}")

    def _end(self, status: BenchStatus, reason: str) -> None:
        # Written at once and last: whoever reads that the bench has ended may remove or resume it.
        reason = formatting.single_line(reason)
        changes = {"status": status, "reason": reason, "ended": time.time(), "current": None}
        try:
            self._set_state(in_place=True, **changes)
        except OSError as error:  # the folder was moved or deleted
            with suppress(OSError):
                text = f"{reason}; {self.folder}: {error.strerror}"
                print(text, file=sys.stderr, flush=True)

    def _run_rounds(self) -> str:
        """Run rounds, and return why there are no more."""
        rules = self.definition.rules
        while (done := self.state.rounds) < rules.repeats:
            if not self._included():
                return "every candidate failed: " + next(iter(self.state.excluded.values()))
            if done >= rules.min_rounds:
                width = widest_interval(self.definition, self.state)
                if width <= rules.precision:
                    alone, *others = self._included()
                    figure = "every ratio" if others else f"the rate of {alone}"
                    return f"{figure} is known within ±{100 * rules.precision:g} %"
            self._run_round(done + 1)
            self._set_state(rounds=done + 1)
            self._check_what_scripts_declare()
        return f"completed all {rules.repeats} rounds"

    def _check_what_scripts_declare(self) -> None:
        """Raise DistrainError if it makes the comparison unequal: it is known once they run."""
        settings = self.definition.settings(self.state.plans, reported_by(self.state))
        if unequal := self.definition.forbidden(settings):
            values = "; ".join(f"{key} is {text}" for key, text in unequal)
            raise DistrainError(f"the comparison is unequal, use --unequal to allow that: {values}")

    def _run_round(self, number: int) -> None:
        order = self._included()
        random.Random(f"{self.definition.rules.seed} {number}").shuffle(order)
        for name in order:
            if self._is_stopping():
                raise BenchStoppedError
            current = CurrentRun(round=number, order=order, candidate=name, began=time.time())
            self._set_state(current=current)
            try:
                self._measure(name, number)
            except ConfigError as error:
                self._exclude(name, str(error))
            except DistrainError as error:
                is_measured = any(each.candidate == name for each in self.state.measurements)
                if isinstance(error, TooShortError) and is_measured:
                    warning = f"{name} was not measured in round {number}: {error}"
                    self._set_state(warnings=[*self.state.warnings, warning])
                else:
                    self._exclude(name, f"failed in round {number}: {error}")

    def _measure(self, name: str, number: int) -> None:
        def record_run(run_id: str) -> None:
            assert self.state.current is not None
            self._set_state(current=structs.replace(self.state.current, run_id=run_id))

        measurement = measure(
            self.definition,
            name,
            number,
            folder=self.folder / RUNS,
            cwd=self.state.cwd,
            queue=self.state.queue,
            environment=owner_variables(),
            is_stopping=self._is_stopping,
            on_launch=record_run,
        )
        self._set_state(
            measurements=[*self.state.measurements, measurement],
            warnings=[*self.state.warnings, *self._find_changes(measurement.run_id, number)],
        )

    def _find_changes(self, run_id: str, number: int) -> list[str]:
        """Return what has changed since the bench was started, as code that was edited meanwhile.

        Only the first time: a script may write to files that git tracks.
        """
        found = read_state(self.folder / RUNS / run_id).provenance
        if not self._origin or not (changes := _compare_provenance(self._origin, found)):
            return []
        self._origin = {}
        return [f"in round {number}: {sentence}" for sentence in changes]

    def _is_stopping(self) -> bool:
        self._restore_files()
        if self._stop_requested and self.state.status != "stopping":
            self._set_state(status="stopping")
        return self._stop_requested

    def _included(self) -> list[str]:
        return [name for name in self.definition.configs if name not in self.state.excluded]

    def _exclude(self, name: str, reason: str) -> None:
        self._set_state(excluded={**self.state.excluded, name: formatting.single_line(reason)})

    def _record_origin(self) -> None:
        """Record the provenance at the first start, and later what differs from it."""
        start = len(self.state.started)
        diff_file = "dirty.diff" if start == 1 else f"dirty-{start}.diff"
        current = provenance(self.folder, dict(os.environ), diff_file)
        first = self.state.provenance or current
        self._origin = current
        changes = _compare_provenance(first, current)
        when = "at the start"
        if start > 1:
            when = f"when it was resumed ({formatting.date(time.time())})"
        warnings = [f"{when}: {sentence}" for sentence in [*changes, *self._find_obstacles()]]
        self._set_state(provenance=first, warnings=[*self.state.warnings, *warnings])

    def _find_obstacles(self) -> list[str]:
        """Return who uses the devices and disturbs the measurements from the start."""
        try:
            return find_obstacles_of_any(self.state.plans.values(), self.folder / RUNS)
        except DistrainError as error:
            return [str(error)]

    def _set_state(self, *, in_place: bool = False, **changes: Any) -> None:
        self.state = structs.replace(self.state, **changes)
        write_bench_state(self.folder, self.state, in_place=in_place)
        self._stamp = self._find_stamp()

    def _restore_files(self) -> None:
        """Write again bench.json where somebody else has deleted or overwritten it, and bench.toml
        where it was deleted: without it, nobody could read the results.
        """
        if not self.folder.exists():
            return
        with suppress(OSError):  # tried again with the next look at them
            if not os.path.lexists(self.folder / DEFINITION):
                write_atomically(self.folder / DEFINITION, self.definition.to_toml().encode())
            if self._find_stamp() != self._stamp:
                self._set_state()

    def _find_stamp(self) -> tuple[int, ...]:
        """Return what changes when somebody writes to bench.json; nothing where it is gone."""
        try:
            found = (self.folder / STATE).lstat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def _compare_provenance(first: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Return a sentence for each difference that may affect the figures."""
    before = describe_provenance(first)
    now = describe_provenance(current)
    return [
        f"{key} was {before.get(key, 'unknown')} and is {now.get(key, 'unknown')}"
        for key in before | now
        if before.get(key) != now.get(key)
    ]


def _log_traceback() -> None:
    with suppress(OSError):  # the log is on the same disk, which may be full
        traceback.print_exc()


def _lock(folder: Path) -> bool:
    """Lock the bench until this process exits. Return False if another process holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(folder / LOCK, flags, 0o644)
    return lock_within(lock, LOCK_S)


def main() -> int:
    """Return 0 once a detached process runs the bench, 1 if it could not start."""
    folder = Path(sys.argv[1]).resolve()
    queue = sys.argv[2:] == [QUEUE]

    def work(report_started: Callable[[], None]) -> int:
        if not _lock(folder):
            print("another process runs this bench already", file=sys.stderr, flush=True)
            return 1
        rounds = Rounds(folder)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, rounds.request_stop)
        rounds.begin(queue)
        report_started()
        rounds.run()
        return 0

    return run_detached(work, folder / LOG)


if __name__ == "__main__":
    sys.exit(main())
