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
from runners.errors import ConfigError, DistrainError
from runners.processes import mark_as_owner
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
            origin = provenance(self.folder, dict(os.environ))
            self._set(provenance=origin, warnings=self._who_else())
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

    def _who_else(self) -> list[str]:
        """Who disturbs the timings from the first moment on."""
        try:
            found = who_has_any(self.state.plans.values(), self.folder / RUNS)
        except DistrainError as error:
            return [str(error)]
        return [f"when it began: {sentence}" for sentence in found]

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
    """Detach: the parent returns 0 once the bench is under way, 1 if it could not begin."""
    folder = Path(sys.argv[1]).resolve()
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.setsid()
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((0, nothing), (1, log), (2, log)):
        os.dup2(target, number)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if not _alone(folder):
        print("another process does this bench already", file=sys.stderr, flush=True)
        return 1
    rounds = Rounds(folder)
    for signalled in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signalled, rounds.stop)
    rounds.begin(queue=sys.argv[2:] == [QUEUE])
    os.write(writing, b"1")
    os.close(writing)
    rounds.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
