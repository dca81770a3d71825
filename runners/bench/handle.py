"""A bench as people handle it: start, find, stop, resume, rerun, remove."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distrain.runners import formatting, session_process
from distrain.runners.bench.definition import Definition, plans
from distrain.runners.bench.folder import (
    DEFINITION,
    LOG,
    QUEUE,
    RUNS,
    STATE,
    create_bench,
    has_process,
    read_bench_state,
    read_definition,
)
from distrain.runners.bench.state import BenchState
from distrain.runners.config import trust
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, DistrainError, RunsFolderError
from distrain.runners.records.meta import Meta, change_meta, read_meta
from distrain.runners.records.reader import Record
from distrain.runners.records.run_names import next_free_name
from distrain.runners.records.state import not_a_record
from distrain.runners.records.trash import move_to_trash
from distrain.runners.runs import Run
from distrain.runners.session import POLL_S, choose, folders_of, runs_folder
from distrain.runners.system.processes import is_suspended

if TYPE_CHECKING:
    from distrain.runners.analysis.comparison.model import Comparison

PROCESS = "distrain.runners.bench.rounds"


class Bench:
    """A bench, live or ended. It stays valid when the program that started it exits.

    Raises DistrainError if the folder is not a bench.
    """

    kind: ClassVar[Literal["bench"]] = "bench"

    def __init__(self, folder: Path) -> None:
        self.dir = Path(folder).absolute()
        self.id = self.dir.name
        self.definition = read_definition(self.dir)
        state = self._last_state = read_bench_state(self.dir)
        self.created = state.created
        names = self.definition.configs.keys()
        measured = {each.candidate for each in state.measurements}
        if state.plans.keys() != names or not measured <= names:
            raise not_a_record(self.dir, f"its {STATE} and {DEFINITION} have different candidates")

    @property
    def runs_dir(self) -> Path:
        """The folder of all runs and benches, in which this bench is."""
        return self.dir.parent

    @property
    def records_dir(self) -> Path:
        """The folder of the records of the runs that it measured."""
        return self.dir / RUNS

    @property
    def state(self) -> BenchState:
        """What bench.json has; where it was deleted or damaged, what it had, as long as the
        bench's process, which writes it again within seconds, is there.
        """
        try:
            self._last_state = read_bench_state(self.dir)
        except DistrainError:
            if not (os.path.lexists(self.dir) and has_process(self._last_state)):
                raise
        return self._last_state

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def reason(self) -> str:
        return self.state.reason

    @property
    def is_live(self) -> bool:
        return self.state.live

    @property
    def meta(self) -> Meta:
        """Name, notes, tags and pin, as people edit them."""
        return read_meta(self.dir)

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned. Raises DistrainError."""
        return change_meta(self.dir, **changes)

    @property
    def name(self) -> str:
        """The name that a person gave last, or an empty string."""
        return self.meta.name or self._last_state.name  # which never changes

    @property
    def current_run(self) -> Run | None:
        """The run that is being measured."""
        current = self.state.current
        if current is None or not current.run_id:
            return None
        return Run(Record(self.records_dir / current.run_id))

    @property
    def obstacle(self) -> str:
        """Why a live bench makes no progress: it is suspended, or its run has stalled; else ""."""
        state = self.state
        if not state.live:
            return ""
        if state.reason:
            return state.reason
        with suppress(DistrainError):  # the record is being written or removed
            if (run := self.current_run) and (text := run.record.state.obstacle):
                return formatting.single_line(f"run {run.id}: {text}")
        return ""

    def comparison(self) -> Comparison:
        """Return what the measurements so far show."""
        from distrain.runners.bench.results import compare  # loads numpy, which lists do without

        return compare(self.definition, self.state, self.dir)

    def recover(self) -> bool:
        """Return False: the process of a bench is never replaced, `resume` continues it."""
        return False

    def attend(self) -> bool:
        """Return whether the bench is live."""
        return self.is_live

    def wait(self) -> Comparison:
        """Wait until the bench has ended, and return what it shows."""
        while self.is_live:
            time.sleep(POLL_S)
        return self.comparison()

    def stop(self, now: bool = False) -> None:
        """Ask the bench to end its current run and then itself, and return.

        `now` makes no difference. Raises DistrainError if the bench has ended, is still starting,
        is suspended, or belongs to another host or user.
        """
        state = self.state
        if not state.live:
            raise DistrainError(f"bench {self.id} has ended: {state.status}")
        if state.host != socket.gethostname():
            raise DistrainError(f"bench {self.id} runs on {state.host}; stop it there")
        if state.pid is None:
            raise DistrainError(f"bench {self.id} is still starting; try again in a moment")
        try:
            self._check_is_own_process(state.pid)
            os.kill(state.pid, signal.SIGTERM)
        except ProcessLookupError:
            if self.is_live:  # hidden, as in a container
                raise DistrainError(f"bench {self.id} cannot be stopped from here") from None
            return
        except PermissionError:
            raise DistrainError(f"bench {self.id} belongs to another user") from None
        self._check_not_suspended(state.pid)

    def _check_is_own_process(self, pid: int) -> None:
        """Raise DistrainError if a process does not measure this bench: bench.json may be wrong."""
        import psutil  # lists of benches do without

        try:
            words = psutil.Process(pid).cmdline()
        except psutil.NoSuchProcess:
            raise ProcessLookupError from None
        except psutil.AccessDenied:
            raise PermissionError from None
        if PROCESS not in words or self.id not in [Path(word).name for word in words]:
            text = f"process {pid}, which bench {self.id} names, is not that of the bench"
            raise DistrainError(f"{text}; it was not stopped")

    def _check_not_suspended(self, own_pid: int) -> None:
        """Raise DistrainError if the bench cannot stop: a process of it is suspended."""
        processes = {own_pid: "its process"}
        with suppress(DistrainError):  # the record of its run is gone
            if (run := self.current_run) and (pid := run.record.state.supervisor_pid):
                processes[pid] = f"the supervisor of its run {run.id}"
        if suspended := [pid for pid in processes if is_suspended(pid)]:
            names = " and ".join(f"{processes[pid]} (process {pid})" for pid in suspended)
            pids = " ".join(map(str, suspended))
            verb = "is" if len(suspended) == 1 else "are"
            text = f"bench {self.id} cannot stop, because {names} {verb} suspended"
            ways = f"`kill -CONT {pids}` lets it stop, or `kill -KILL {pids}` ends it"
            raise DistrainError(f"{text}; {ways}")

    def remove(self) -> Path:
        """Move the bench with its runs to the trash. Raises DistrainError while it is live."""
        state = self.state
        if state.live:
            raise DistrainError(f"bench {self.id} is {state.status}; stop it before removing it")
        return move_to_trash(self.dir)

    @property
    def launched_from(self) -> str:
        """The folder that relative paths in the configs start from.

        Raises DistrainError if it no longer exists.
        """
        cwd = self.state.cwd
        if not os.path.isdir(cwd):
            raise DistrainError(
                f"the folder in which bench {self.id} was started no longer exists: {cwd}"
            )
        return cwd

    def untrusted_code(self) -> list[str]:
        cwd = self.launched_from
        found = [trust.untrusted_code(config, cwd) for config in self.rerun_configs()]
        return [*dict.fromkeys(chain.from_iterable(found))]

    def trust(self) -> None:
        for config in self.rerun_configs():
            trust.remember(config, self.launched_from)

    def _check_trusted(self) -> None:
        trust.require_trust(f"bench {self.id} ({self.dir})", self.untrusted_code())

    def rerun_configs(self) -> list[RunConfig]:
        return list(self.definition.configs.values())

    def resume_configs(self) -> list[RunConfig]:
        self._check_resumable()
        return self.rerun_configs()

    def _check_resumable(self) -> None:
        """Raise DistrainError if the bench is live or has completed all its rounds."""
        state = self.state
        if state.live:
            raise DistrainError(f"bench {self.id} is still {state.status}")
        if state.rounds >= self.definition.rules.repeats:
            raise DistrainError(f"bench {self.id} has completed all its rounds; rerun it")

    def resume(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Bench:
        """Continue with the next round, in the same folder.

        `queue` is as for `start`; None means as before. A bench resumes as it was defined, so
        `changes` and `name` raise ConfigError. Raises DistrainError if it cannot be resumed.
        """
        if changes or name:
            raise ConfigError("a bench resumes as it was defined; use rerun to change it")
        self._check_resumable()
        self._check_trusted()
        if plans(self.definition, self.launched_from) != self.state.plans:
            raise DistrainError(
                f"the devices here differ from those that bench {self.id} started with; rerun it"
            )
        _start_process(self.dir, self.state.queue if queue is None else queue, self.launched_from)
        return self

    def rerun(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Bench:
        """Start the same definition as a new bench, with dotted keys of all configs changed."""
        self._check_trusted()
        state = self.state
        return start(
            self.definition.with_changes(changes or {}),
            name=next_free_name(self.name, self.runs_dir) if name is None else name,
            runs_dir=self.runs_dir,
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
    """Start a bench in a process of its own, which continues when this program exits.

    With `queue` each run waits until its devices are free. `cwd` is where relative paths in the
    configs start from, `command` is recorded as what started the bench. Raises ConfigError before
    anything is started, RunsFolderError, or DistrainError.
    """
    candidate_plans = plans(definition, cwd)
    for config in definition.configs.values():
        trust.remember(config, cwd)
    folder = create_bench(
        runs_folder(runs_dir),
        definition,
        candidate_plans,
        name=name,
        cwd=cwd or os.getcwd(),
        command=sys.argv if command is None else command,
        queue=queue,
    )
    _start_process(folder, queue, cwd)
    return Bench(folder)


def _start_process(folder: Path, queue: bool, cwd: str | None) -> None:
    arguments = [str(folder)]
    if queue:
        arguments.append(QUEUE)
    log = folder / LOG
    if reason := session_process.start("the bench", PROCESS, *arguments, log=log, cwd=cwd):
        raise DistrainError(f"{reason}; see {log}")


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Bench:
    """Return the bench with this path, id, unique prefix of an id or name, or the `latest`.

    Of several benches with one name it is the newest. Raises RunNotFoundError.
    """
    folder = runs_folder(runs_dir)
    return bench_at(wanted, folder) or choose(wanted, all_benches(folder), folder, "bench")


def bench_at(wanted: str, runs_dir: Path) -> Bench | None:
    """Return the bench whose folder has this path, or whose id in `runs_dir` is this, or None."""
    folder = next(folders_of(wanted, runs_dir, STATE), None)
    return Bench(folder) if folder else None


def all_benches(
    runs_dir: str | os.PathLike[str] | None = None,
    on_error: Callable[[DistrainError], None] | None = None,
) -> list[Bench]:
    """Return every bench in the folder, oldest first.

    `on_error` is called with the error of each bench that cannot be read. Raises RunsFolderError.
    """
    folder = runs_folder(runs_dir)
    try:
        names = [path.name for path in folder.iterdir() if _is_bench(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunsFolderError(f"cannot read the runs folder {folder}: {error.strerror}") from None
    benches = []
    for name in names:
        try:
            benches.append(Bench(folder / name))
        except DistrainError as error:
            if on_error is not None:
                on_error(error)
    return sorted(benches, key=lambda bench: (bench.created, bench.id))


def _is_bench(path: Path) -> bool:
    return os.path.lexists(path / STATE)
