"""Bench: ways of training beside each other, in interleaved rounds of real runs.

    from runners.bench import contestants, make, start

    bench = start(make(contestants(["single", "ddp"], {})))
    print(bench.wait().verdicts)

Owns what is measured, in which order and for how long; what follows from it is a `Comparison`. A
bench is a folder among the runs, done by a process of its own that outlives whoever asked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners import processes
from runners.bench import state as states
from runners.bench.definition import Definition, Target, contestants, make, plans
from runners.bench.state import DEFINITION, LOG, QUEUE, RUNS, STATE, BenchState
from runners.errors import DistrainError, RunsFolderError
from runners.record import Record, discard
from runners.runs import POLL_S, Run, choose, places, runs_folder
from runners.state import Meta, change_meta, not_a_record, read_meta

if TYPE_CHECKING:
    from runners.comparison import Comparison

__all__ = [
    "Bench",
    "BenchState",
    "Definition",
    "Target",
    "all_benches",
    "contestants",
    "find",
    "make",
    "plans",
    "start",
]


class Bench:
    """A handle of one bench, live or ended. Raises DistrainError where the folder is none."""

    def __init__(self, folder: Path) -> None:
        self.dir = Path(folder).absolute()
        self.id = self.dir.name
        self.definition, state = states.definition(self.dir), states.read(self.dir)
        self.created = state.created
        named = {*state.plans, *(each.contestant for each in state.measurements)}
        if named != self.definition.configs.keys():
            raise not_a_record(self.dir, f"its {STATE} and {DEFINITION} have other contestants")

    @property
    def state(self) -> BenchState:
        return states.read(self.dir)

    @property
    def is_live(self) -> bool:
        return self.state.live

    @property
    def meta(self) -> Meta:
        """What people noted of it."""
        return read_meta(self.dir)

    @property
    def name(self) -> str:
        """The name a person gave it last, or an empty one."""
        return self.meta.name or self.state.name

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned; raises DistrainError."""
        return change_meta(self.dir, **changes)

    @property
    def runs_dir(self) -> Path:
        """The folder of the records of its runs."""
        return self.dir / RUNS

    @property
    def current(self) -> Run | None:
        """The run under way."""
        now = self.state.now
        if now is None or not now.run_id:
            return None
        return Run(Record(self.runs_dir / now.run_id))

    def comparison(self) -> Comparison:
        """What has been measured so far, and what follows from it."""
        from runners.bench.results import compare  # numpy, which a list need not load

        return compare(self.definition, self.state, self.dir)

    def wait(self) -> Comparison:
        """Wait for the end."""
        while self.is_live:
            time.sleep(POLL_S)
        return self.comparison()

    def stop(self) -> None:
        """Ask it to end its present run and then itself; raises DistrainError if it has ended."""
        state = self.state
        if not state.live:
            raise DistrainError(f"bench {self.id} has ended: {state.status}")
        if state.host != socket.gethostname():
            raise DistrainError(f"bench {self.id} is done on {state.host}; stop it there")
        if state.pid is None:
            raise DistrainError(f"bench {self.id} is still starting; try again in a moment")
        try:
            os.kill(state.pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        except PermissionError:
            raise DistrainError(f"bench {self.id} is another user's") from None

    def remove(self) -> Path:
        """Move it to the trash beside it, with its runs; raises DistrainError while it is live."""
        if (state := self.state).live:
            raise DistrainError(f"bench {self.id} is {state.status}; stop it before removing it")
        return discard(self.dir)

    @property
    def launched_from(self) -> str:
        """What relative paths in the configs start from; raises DistrainError if it is gone."""
        cwd = self.state.cwd
        if not Path(cwd).is_dir():
            raise DistrainError(f"the folder that bench {self.id} was begun in is gone: {cwd}")
        return cwd

    def resumption(self) -> Definition:
        """What a resumed bench goes on with; raises DistrainError where that is nothing."""
        state = self.state
        if state.live:
            raise DistrainError(f"bench {self.id} is still {state.status}")
        if state.rounds >= self.definition.rules.repeats:
            raise DistrainError(f"bench {self.id} has done all its rounds; rerun it")
        return self.definition

    def resume(self, *, queue: bool | None = None) -> Bench:
        """Go on with the next round, in the same folder; `queue` as for `start`, as before where
        it is not given. Raises DistrainError.
        """
        self.resumption()
        if plans(self.definition, self.launched_from) != self.state.plans:
            text = f"the devices here are not those that bench {self.id} began with; rerun it"
            raise DistrainError(text)
        _begin(self.dir, self.state.queue if queue is None else queue, self.launched_from)
        return self

    def rerun(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Bench:
        """The same definition from the start, with dotted keys of all configs changed."""
        state = self.state
        return start(
            self.definition.with_changes(changes or {}),
            name=self.name if name is None else name,
            runs_dir=self.dir.parent,
            cwd=self.launched_from,
            queue=state.queue if queue is None else queue,
        )


def start(
    definition: Definition,
    *,
    name: str = "",
    runs_dir: str | os.PathLike[str] | None = None,
    cwd: str | None = None,
    command: list[str] | None = None,
    queue: bool = False,
) -> Bench:
    """Start a bench that goes on without us. With `queue` each run waits until its devices are
    free. Raises ConfigError before anything is started, RunsFolderError, or DistrainError.
    """
    folder = states.create(
        runs_folder(runs_dir),
        definition,
        plans(definition, cwd),
        name=name,
        cwd=cwd or os.getcwd(),
        command=sys.argv if command is None else command,
        queue=queue,
    )
    _begin(folder, queue, cwd)
    return Bench(folder)


def _begin(folder: Path, queue: bool, cwd: str | None) -> None:
    if processes.start("runners.bench.rounds", str(folder), *[QUEUE] * queue, cwd=cwd):
        raise DistrainError(f"the bench did not start; {folder / LOG} may say why")


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Bench:
    """The bench of that id, unique prefix of an id, name (the newest of it), `latest`, or folder.

    Raises RunNotFoundError.
    """
    folder = runs_folder(runs_dir)
    return at(wanted, folder) or choose(wanted, all_benches(folder), folder, "bench")


def at(wanted: str, folder: Path) -> Bench | None:
    """The bench in the folder of that path, or of that id among the runs."""
    place = next(places(wanted, folder, STATE), None)
    return Bench(place) if place else None


def all_benches(
    runs_dir: str | os.PathLike[str] | None = None,
    on_error: Callable[[DistrainError], None] | None = None,
) -> list[Bench]:
    """Every bench in the folder, oldest first; `on_error` hears of each that cannot be read.
    Raises RunsFolderError.
    """
    folder = runs_folder(runs_dir)
    try:
        names = [path.name for path in folder.iterdir() if _is_one(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunsFolderError(f"cannot read the runs folder {folder}: {error.strerror}") from None
    found = []
    for name in names:
        try:
            found.append(Bench(folder / name))
        except DistrainError as error:
            if on_error is not None:
                on_error(error)
    return sorted(found, key=lambda bench: (bench.created, bench.id))


def _is_one(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return (path / STATE).is_file()
    return False
