"""The process of a bench: rounds in random order until every ratio is known well enough.

`python -m runners.bench.rounds FOLDER` detaches and returns once the bench is under way; it goes on
without whoever asked for it. SIGINT and SIGTERM stop it after its present run was ended.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from msgspec import structs

from runners import words
from runners.bench import state as states
from runners.bench.definition import Definition
from runners.bench.measuring import StoppedError, measure
from runners.bench.results import precision
from runners.bench.state import LOCK, LOG, QUEUE, RUNS, BenchState, Now
from runners.claims import who_has_any
from runners.comparison.origins import told
from runners.errors import ConfigError, DistrainError
from runners.processes import detached, mark_as_owner
from runners.provenance import provenance


class Rounds:
    """Does one bench; only its process writes bench.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.definition: Definition = states.definition(folder)
        self.state: BenchState = states.read(folder)
        self._stop = False
        process = psutil.Process()
        self._me = (process.pid, process.create_time())

    def stop(self, *_: Any) -> None:
        self._stop = True

    def _stopped(self) -> bool:
        if self._stop and self.state.status != "stopping":
            self._set(status="stopping")
        return self._stop

    def begin(self, queue: bool) -> None:
        """Say who does it; rounds that were not finished are begun anew."""
        self._set(
            status="running",
            queue=queue,
            reason="",
            ended=None,
            out={},
            started=[*self.state.started, time.time()],
            pid=self._me[0],
            pid_started=self._me[1],
            measurements=[m for m in self.state.measurements if m.round <= self.state.rounds],
        )

    def run(self) -> None:
        """All rounds; says in the end why there were no more."""
        try:
            self._say_where()
            reason = self._rounds()
            self._end("completed" if self._left() else "failed", reason)
        except StoppedError:
            self._end("stopped", "stopped on request")
        except DistrainError as error:
            self._end("failed", str(error))
        except Exception as error:
            traceback.print_exc()
            self._end("failed", f"{type(error).__name__}: {error}")

    def _end(self, status: states.Status, reason: str) -> None:
        """The last that is written, at once: whoever sees the end may remove or resume it."""
        self._set(status=status, reason=words.line(reason), ended=time.time(), now=None)

    def _rounds(self) -> str:
        rules = self.definition.rules
        while (done := self.state.rounds) < rules.repeats:
            if not self._left():
                return "no contestant is left: " + next(iter(self.state.out.values()))
            if done >= rules.least and precision(self.definition, self.state) <= rules.precision:
                return f"every ratio is known within ±{100 * rules.precision:g} %"
            self._round(done + 1)
            self._set(rounds=done + 1)
        return f"all {rules.repeats} rounds were done"

    def _round(self, number: int) -> None:
        order = self._left()
        random.Random(f"{self.definition.rules.seed} {number}").shuffle(order)
        for name in order:
            if self._stopped():
                raise StoppedError
            self._set(now=Now(round=number, order=order, contestant=name, began=time.time()))
            try:
                self._measure(name, number)
            except ConfigError as error:
                self._out(name, str(error))
            except DistrainError as error:
                self._out(name, f"failed in round {number}: {error}")

    def _measure(self, name: str, number: int) -> None:
        def launched(run_id: str) -> None:
            assert self.state.now is not None
            self._set(now=structs.replace(self.state.now, run_id=run_id))

        measured = measure(
            self.definition,
            name,
            number,
            folder=self.folder / RUNS,
            cwd=self.state.cwd,
            queue=self.state.queue,
            environment=mark_as_owner(),
            stopped=self._stopped,
            launched=launched,
        )
        self._set(measurements=[*self.state.measurements, measured])

    def _left(self) -> list[str]:
        return [name for name in self.definition.configs if name not in self.state.out]

    def _out(self, name: str, why: str) -> None:
        self._set(out={**self.state.out, name: words.line(why)})

    def _say_where(self) -> None:
        """Where the figures come from; of one that was resumed, what is no more as it was."""
        times = len(self.state.started)
        diff = "dirty.diff" if times == 1 else f"dirty-{times}.diff"
        now = provenance(self.folder, dict(os.environ), diff)
        first = self.state.provenance or now
        was, found = told(first), told(now)
        changed = [
            f"{key} was {was.get(key, 'unknown')} and is {found.get(key, 'unknown')}"
            for key in was | found
            if was.get(key) != found.get(key)
        ]
        when = "when it began" if times == 1 else f"when it was resumed ({words.date(time.time())})"
        warnings = [f"{when}: {sentence}" for sentence in [*changed, *self._who_else()]]
        self._set(provenance=first, warnings=[*self.state.warnings, *warnings])

    def _who_else(self) -> list[str]:
        """Who disturbs the timings from the first moment on."""
        try:
            return who_has_any(self.state.plans.values(), self.folder / RUNS)
        except DistrainError as error:
            return [str(error)]

    def _set(self, **changes: Any) -> None:
        self.state = structs.replace(self.state, **changes)
        states.write(self.folder, self.state)


def _alone(folder: Path) -> bool:
    """Hold the bench for as long as this process lives; False where another one does."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main() -> int:
    """0 once a detached process has begun the bench, 1 if it could not."""
    folder, queue = Path(sys.argv[1]).resolve(), sys.argv[2:] == [QUEUE]

    def work(under_way: Callable[[], None]) -> int:
        if not _alone(folder):
            print("another process does this bench already", file=sys.stderr, flush=True)
            return 1
        rounds = Rounds(folder)
        for signalled in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signalled, rounds.stop)
        rounds.begin(queue)
        under_way()
        rounds.run()
        return 0

    return detached(work, folder / LOG)


if __name__ == "__main__":
    sys.exit(main())
