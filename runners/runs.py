"""Runs as a person handles them: launch, find, follow, stop, resume, rerun, remove.

from runners import launch, load_preset

run = launch(load_preset("ddp", {"train.epochs": 5}))
print(run.wait()["eval"])
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import structs

from models import importing
from models.catalog import problems as task_problems
from models.errors import TaskError
from runners import horovod, processes
from runners import record as records
from runners.config import RunConfig
from runners.connecting import ask
from runners.errors import ConfigError, DistrainError, RunNotFoundError, RunsFolderError
from runners.events import Event, Stop
from runners.plan import Plan, make_plan
from runners.record import Record
from runners.slurm.nodes import problems as cluster_problems
from runners.state import Meta, RunError, create_run, read_state, write_state

POLL_S = 0.1

_FOLDER = threading.Lock()  # the current folder is the whole process's


class Run:
    """A handle of one run, live or ended; it stays valid when the program that launched ends."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        """The name a person gave, or an empty one."""
        return self.record.name

    @property
    def created(self) -> float:
        return self.record.created

    @property
    def is_live(self) -> bool:
        return self.record.state.live

    def events(self, follow: bool = True) -> Iterator[Event]:
        """Everything but windows, in order; while the run is live, waits for more."""
        last = 0
        while True:
            live = self.attend() if follow else self.is_live
            for last, event in self.record.events(after_id=last):  # noqa: B007, B020
                yield event
            if not (live and follow):
                return
            time.sleep(POLL_S)

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end, as `attend` does, and give the summary; raises TimeoutError after so
        many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.attend():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} has not ended within {timeout} s")
            time.sleep(POLL_S)
        return self.summary()

    def stop(self, now: bool = False) -> None:
        """Ask for a graceful stop with a checkpoint, or end it at once; returns when asked.

        A queued run leaves the queue and never starts; one that nobody follows is taken up first.
        Raises DistrainError where the run has ended already.
        """
        self.recover()
        state = self.record.state
        if not state.live:
            raise DistrainError(f"run {self.id} has ended: {state.status}")
        address = state.socket
        if not address:
            raise DistrainError(f"run {self.id} is still starting; try again in a moment")
        try:
            ask(address, Stop(now=now))
        except OSError:
            if self.is_live:
                raise DistrainError(f"run {self.id} does not answer at {address}") from None

    def recover(self) -> bool:
        """Have a Slurm job that is recorded beside its run supervised again, if nobody does; its
        record is merged from the journal. Raises DistrainError where no supervisor starts.
        """
        if not self.record.unfollowed:
            return False
        if processes.start("runners.supervisor", str(self.record.dir)):
            if not self.record.unfollowed:  # somebody else was quicker
                return False
            raise DistrainError(_why_stillborn(self.record.dir))
        return True

    def attend(self) -> bool:
        """Whether the run is live, so that its end can be waited for: one that nobody follows is
        taken up (see `recover`).
        """
        return self.recover() or self.is_live

    def summary(self) -> dict[str, Any]:
        """What `distrain run --json` prints."""
        return self.record.summary()

    def remove(self) -> Path:
        """Move the record to the trash beside it; raises DistrainError while it is live."""
        return records.remove(self.record)

    def rerun(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool = False,
    ) -> Run:
        """The same config again, from the start, with dotted keys changed."""
        return self._again(self.repetition(changes), name, queue)

    def resume(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool = False,
    ) -> Run:
        """A new run that goes on from the last checkpoint; raises as `resumption` does."""
        return self._again(self.resumption(changes), name, queue, parent=self.id)

    def repetition(self, changes: dict[str, Any] | None = None) -> RunConfig:
        """What a rerun is to do."""
        return self.record.config.with_changes({"checkpoint.load": None, **(changes or {})})

    @property
    def launched_from(self) -> str | None:
        """The folder that relative paths in the config mean; None where it is gone."""
        cwd: str | None = self.record.state.provenance.get("cwd")
        return cwd if cwd and Path(cwd).is_dir() else None

    def resumption(self, changes: dict[str, Any] | None = None) -> RunConfig:
        """What a resumed run is to do; raises DistrainError without a checkpoint, and ConfigError
        where there is nothing left to train.
        """
        if self.is_live:
            raise DistrainError(f"run {self.id} is still {self.record.state.status}")
        if (last := self.record.last_checkpoint) is None:
            raise DistrainError(f"run {self.id} has no checkpoint to go on from; rerun it")
        changes = {"checkpoint.load": str(last), **(changes or {})}
        config = self.record.config.with_changes(changes)
        if self.record.status == "completed":
            self._want_more(config)
        return config

    def _want_more(self, config: RunConfig) -> None:
        summary, train = self.summary(), config.train
        limits = {
            "epochs": (summary["epochs"], train.epochs),
            "max_steps": (summary["steps"], train.max_steps),
        }
        for key, (done, wanted) in limits.items():
            if wanted is not None and done >= wanted:
                text = f"nothing is left to train, run {self.id} has done all {done:,}; set more"
                raise ConfigError([(f"train.{key}", text)])

    def _again(
        self, config: RunConfig, name: str | None, queue: bool, parent: str | None = None
    ) -> Run:
        return launch(
            config,
            name=self.record.name if name is None else name,
            runs_dir=self.record.runs_dir,
            parent=parent,
            cwd=self.launched_from,
            queue=queue,
        )


def runs_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all records: as given, else $DISTRAIN_RUNS_DIR, else ./runs.

    Raises RunsFolderError where the current folder is gone.
    """
    try:
        return Path(given or os.environ.get("DISTRAIN_RUNS_DIR") or "runs").absolute()
    except FileNotFoundError:
        raise RunsFolderError("the current folder has been deleted; go to another") from None


def check(config: RunConfig, cwd: str | None = None) -> Plan:
    """The plan of a config that can run here; raises ConfigError with all problems at once.

    `cwd` as for `launch`.
    """
    with _FOLDER, contextlib.chdir(cwd or "."):
        return _check(config)


def _check(config: RunConfig) -> Plan:
    problems = task_problems(
        task=config.task.name,
        model=config.model.name,
        data=config.data.name,
        root=config.data.root,
        download=config.data.download,
    )
    if ":" in config.strategy:
        try:
            importing.check("strategy", config.strategy)
        except TaskError as error:
            problems.append((error.key, error.sentence))
    if config.dist.node_rank:
        text = "a host that joins keeps no record: `distrain run` or `distrain join` does it"
        problems.append(("dist.node_rank", text))
    if config.launcher == "env" and os.environ.get("RANK", "0") not in ("", "0"):
        text = (
            f"rank {os.environ['RANK']} keeps no record: `distrain run` has it join that of rank 0"
        )
        problems.append(("launcher", text))
    if config.checkpoint.load and not Path(config.checkpoint.load).is_file():
        problems.append(("checkpoint.load", f"there is no file {config.checkpoint.load}"))
    plan = None
    try:
        plan = make_plan(config)
    except ConfigError as error:
        problems = [*error.problems, *problems]
    if config.strategy == "horovod" or (plan and plan.backend == "horovod"):
        problems += horovod.problems(config.horovod.via, plan.devices if plan else [])
    if problems or not plan:
        raise ConfigError(problems)
    return plan


def launch(
    config: RunConfig,
    *,
    name: str = "",
    runs_dir: str | os.PathLike[str] | None = None,
    parent: str | None = None,
    command: list[str] | None = None,
    cwd: str | None = None,
    queue: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Start a run that goes on without us; returns once its supervisor listens.

    `cwd` is where relative paths and the user's own modules are looked for, `environment` what is
    added to ours. With `queue` the run waits until its devices are free; without, it starts
    whoever has them. Raises ConfigError before anything is started, RunsFolderError, or
    DistrainError where the supervisor fails or there can be no queue.
    """
    with _FOLDER, contextlib.chdir(cwd or "."):
        plan = _check(config)
        if plan.scheduled and (why_not := cluster_problems(config.slurm.partition)):
            raise ConfigError(why_not)
        if queue:
            from runners import claims  # psutil, which other launches need not load

            claims.folder()
        folder = create_run(
            runs_folder(runs_dir),
            config,
            plan=plan,
            word=name or config.strategy,
            command=sys.argv if command is None else command,
            parent=parent,
            meta=Meta(name=name) if name else None,
            queue=queue,
        )
        failed = processes.start("runners.supervisor", str(folder), environment=environment)
    if failed:
        raise _stillborn(folder)
    return Run(Record(folder))


def _why_stillborn(folder: Path) -> str:
    log = folder / "logs" / "supervisor.log"
    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f"the supervisor did not start: {said[-1] if said else 'it said nothing'}"


def _stillborn(folder: Path) -> DistrainError:
    why = _why_stillborn(folder)
    error = RunError(rank=None, type="SupervisorLost", message=why)
    state = read_state(folder)
    write_state(folder, structs.replace(state, status="failed", reason=why, error=error))
    return DistrainError(f"{why}; see {folder / 'logs' / 'supervisor.log'}")


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run:
    """The run of that id, unique prefix of an id, name (the newest of it), or `latest`.

    Raises RunNotFoundError.
    """
    folder = runs_folder(runs_dir)
    return at(wanted, folder) or choose(wanted, all_runs(folder), folder)


def at(wanted: str, folder: Path) -> Run | None:
    """The run in the folder of that path, or of that id among the runs."""
    place = next(places(wanted, folder, "run.json"), None)
    return Run(Record(place)) if place else None


def places(wanted: str, folder: Path, file: str) -> Iterator[Path]:
    """The folders that may be meant, and hold that file."""
    for place in [Path(wanted)] * (os.sep in wanted) + [folder / wanted] * bool(wanted):
        with contextlib.suppress(OSError):  # longer than a name may be
            if (place / file).is_file():
                yield place


class Named(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def choose(wanted: str, among: Sequence[N], folder: Path, what: str = "run") -> N:
    """The one of that id, unique prefix of an id, name (the last of it), or `latest`, the last.

    Raises RunNotFoundError.
    """
    if not wanted:
        raise RunNotFoundError(f"which {what}? An id, the beginning of one, a name, or latest")
    if not among:
        raise RunNotFoundError(f"there is no {what} in {folder}")
    if wanted == "latest":
        return among[-1]
    exact = [each for each in among if wanted in (each.id, each.name)]
    if exact:
        return exact[-1]
    near = [each for each in among if each.id.startswith(wanted)]
    if len(near) == 1:
        return near[0]
    if near:
        ids = ", ".join(each.id for each in near)
        raise RunNotFoundError(f"{wanted!r} could be any of {ids}")
    raise RunNotFoundError(f"no {what} {wanted!r} in {folder}; `distrain runs` lists them")


def all_runs(runs_dir: str | os.PathLike[str] | None = None) -> list[Run]:
    """Every run in the folder, oldest first."""
    return [Run(record) for record in records.list_records(runs_folder(runs_dir))]
