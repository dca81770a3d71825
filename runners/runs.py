"""Runs as people handle them: launch, find, follow, stop, resume, rerun, remove.

from distrain import launch, load_preset

run = launch(load_preset("ddp", {"train.epochs": 5}))
print(run.wait()["eval"])
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import structs

from distrain.runners import formatting, session_process, supervisor_requests
from distrain.runners.checks import check
from distrain.runners.config import trust
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError, DistrainError, UntrustedError
from distrain.runners.launchers.slurm.nodes import submission_problems
from distrain.runners.protocol.events import Event, Stacks
from distrain.runners.records import trash
from distrain.runners.records.folder import create_run
from distrain.runners.records.logs import log_path
from distrain.runners.records.meta import Meta
from distrain.runners.records.reader import Record, list_records
from distrain.runners.records.run_names import next_free_name
from distrain.runners.records.state import RunError, read_state, write_state
from distrain.runners.session import POLL_S, choose, folders_of, runs_folder

SUPERVISOR = "distrain.runners.supervision.supervisor"


class Run:
    """A run, live or ended. It stays valid when the program that launched it exits."""

    kind: ClassVar[Literal["run"]] = "run"

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def dir(self) -> Path:
        return self.record.dir

    @property
    def runs_dir(self) -> Path:
        """The folder of all runs; of a run that a bench measured, the one with the bench."""
        return self.record.runs_dir

    @property
    def name(self) -> str:
        """The name that a person gave, or an empty string."""
        return self.record.name

    @property
    def group(self) -> str:
        """The id of the group that the run was launched in, or an empty string."""
        return self.record.state.group

    @property
    def created(self) -> float:
        return self.record.created

    @property
    def status(self) -> str:
        return self.record.status

    @property
    def reason(self) -> str:
        return self.record.state.reason

    @property
    def is_live(self) -> bool:
        return self.record.state.live

    @property
    def is_starting(self) -> bool:
        """Whether the supervisor of a live run does not listen yet."""
        state = self.record.state
        return state.live and not supervisor_requests.address_of(state)

    @property
    def meta(self) -> Meta:
        """Name, notes, tags and pin, as people edit them."""
        return self.record.meta

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned. Raises DistrainError."""
        return self.record.set_meta(**changes)

    def events(self, follow: bool = True) -> Iterator[Event]:
        """Yield all events except windows, in order; with `follow`, wait for more while live."""
        last_id = 0
        while True:
            is_live = self.attend() if follow else self.is_live
            for event_id, event in self.record.events(after_id=last_id):
                last_id = event_id
                yield event
            if not (is_live and follow):
                return
            time.sleep(POLL_S)

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the run has ended and return its summary; it is recovered if needed.

        Nothing writes in its folder any more when this returns. Raises TimeoutError after `timeout`
        seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.attend():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {self.id} has not ended within {timeout} s")
            time.sleep(POLL_S)
        self.wait_for_supervisor()
        return self.summary()

    def wait_for_supervisor(self) -> None:
        """Wait, after the end of the run, until its supervisor has left the folder.

        One that is suspended is waited for at most ten seconds, one on another host not at all.
        """
        supervisor_requests.wait_until_gone(self.record)

    def stop(self, now: bool = False) -> None:
        """Ask the run to stop, a preset with a checkpoint, or with `now` to end at once; return.

        A queued run leaves the queue and never starts. Raises DistrainError if the run has ended,
        is still starting, or does not answer, or if distrain did not start its program, which
        does not ask whether to stop.
        """
        self.recover()
        supervisor_requests.stop(self.record, now)

    def read_stacks(self) -> list[Stacks]:
        """Return what each rank is doing, as far as it can be read, and keep it in the record.

        Raises DistrainError if the run does not answer.
        """
        return supervisor_requests.read_stacks(self.record)

    def recover(self) -> bool:
        """Start a new supervisor if the run lost its own while its Slurm job continues.

        What the job recorded in the meantime is merged. Return whether one was started. Raises
        DistrainError if it does not start, and UntrustedError if this user has not launched it.
        """
        if not self.record.is_unsupervised:
            return False
        self._check_recoverable()
        if reason := _start_supervisor(self.record.dir):
            if not self.record.is_unsupervised:  # another process recovered the run first
                return False
            raise DistrainError(reason)
        return True

    def _check_recoverable(self) -> None:
        """Raise DistrainError for a record that only claims to be a run of this user.

        Its supervisor would submit or control a job in this user's name.
        """
        if self.dir.stat().st_uid != os.getuid():
            text = "has lost its supervisor; only the user that it belongs to can recover it"
            raise DistrainError(f"run {self.id} {text}")
        if not trust.is_remembered(self.record.config, self.launched_from, self.id):
            text = "has lost its supervisor, and it is not known that you launched it"
            fix = f"`distrain watch {self.id} --trust` recovers it"
            raise UntrustedError(f"run {self.id} {text}; {fix}")

    def attend(self) -> bool:
        """Recover the run if needed, and return whether it is live."""
        return self.recover() or self.is_live

    def summary(self) -> dict[str, Any]:
        """Return what `distrain run --json` prints."""
        return self.record.summary()

    def remove(self) -> Path:
        """Move the record to the trash and return its new path.

        Raises DistrainError while the run is live.
        """
        return trash.remove(self.record)

    def rerun(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Run:
        """Start a new run of the same config, with dotted keys changed.

        By default its name is the next free one: "base-2" for a rerun of "base".
        """
        config = self._rerun_config(changes)
        if name is None:
            name = next_free_name(self.record.name, self.record.runs_dir)
        return self._relaunch(config, name, queue)

    def resume(
        self,
        changes: dict[str, Any] | None = None,
        name: str | None = None,
        *,
        queue: bool | None = None,
    ) -> Run:
        """Start a new run that continues from the last checkpoint, with dotted keys changed.

        A script is started again, and finds the folder with its own files as `previous_dir`.

        Raises DistrainError if the run is live or has no checkpoint, and ConfigError if it has
        completed all its epochs or steps.
        """
        return self._relaunch(self._resume_config(changes), name, queue, parent=self.id)

    @property
    def is_observed(self) -> bool:
        """Whether distrain only records the run: its program was started by somebody else."""
        plan = self.record.state.plan
        return plan is not None and plan.observed

    def untrusted_code(self) -> list[str]:
        return trust.untrusted_code(self.record.config, self.launched_from)

    def trust(self) -> None:
        trust.remember(self.record.config, self.launched_from)
        if self.record.config.launcher == "slurm":
            trust.remember(self.record.config, self.launched_from, self.id)

    def rerun_configs(self) -> list[RunConfig]:
        return [self._rerun_config(None)]

    def resume_configs(self, changes: dict[str, Any] | None = None) -> list[RunConfig]:
        return [self._resume_config(changes)]

    def reached_limit(self, config: RunConfig | None = None) -> tuple[str, int] | None:
        """Return the key of the limit at which a completed run ended, and the epochs or steps that
        it trained; None if there is something left to train with `config`, by default its own.

        Raises DistrainError if the record cannot be read.
        """
        train = (config or self.record.config).train
        if self.status != "completed" or self.record.config.is_script:
            return None
        summary = self.summary()
        limits = (
            ("train.epochs", summary["epochs"], train.epochs),
            ("train.max_steps", summary["steps"], train.max_steps),
        )
        reached = (
            (key, done)
            for key, done, limit in limits
            if limit is not None and done is not None and done >= limit
        )
        return next(reached, None)

    @cached_property  # the same for the question of trust and for the launch
    def launched_from(self) -> str | None:
        """The folder that relative paths in the config start from; None if it no longer exists."""
        cwd: str | None = self.record.state.provenance.get("cwd")  # text, if it is known
        return cwd if cwd and os.path.isdir(cwd) else None

    def _rerun_config(self, changes: dict[str, Any] | None) -> RunConfig:
        self._check_startable()
        return self.record.config.with_changes({"checkpoint.load": None, **(changes or {})})

    def _resume_config(self, changes: dict[str, Any] | None) -> RunConfig:
        if self.is_live:
            raise DistrainError(f"run {self.id} is still {self.status}")
        self._check_startable()
        if self.record.config.is_script:  # it finds its own checkpoint in the folder of this run
            return self.record.config.with_changes(changes or {})
        checkpoint = self.record.resumes_from
        if checkpoint is None:
            began = self.record.config.checkpoint
            is_gone = began.load and began.keep
            gone = f": {began.load}, with which it began, is gone" if is_gone else ""
            raise DistrainError(f"run {self.id} has no checkpoint to resume from{gone}; rerun it")
        changes = {"checkpoint.load": checkpoint, **(changes or {})}
        config = self.record.config.with_changes(changes)
        if limit := self.reached_limit(config):
            key, done = limit
            count = formatting.plural(done, "epoch" if key == "train.epochs" else "step")
            text = f"run {self.id} has already completed {count}; increase {key}"
            raise ConfigError([(key, text)])
        return config

    def _check_startable(self) -> None:
        if self.is_observed:
            text = "was not started by distrain; start its program again yourself"
            raise DistrainError(f"run {self.id} {text}")

    def _relaunch(
        self, config: RunConfig, name: str | None, queue: bool | None, parent: str | None = None
    ) -> Run:
        trust.require_trust(f"run {self.id} ({self.dir})", self.untrusted_code())
        return launch(
            config,
            name=self.record.name if name is None else name,
            runs_dir=self.record.runs_dir,
            parent=parent,
            group=self.group,
            cwd=self.launched_from,
            queue=bool(queue),
        )


def launch(
    config: RunConfig,
    *,
    name: str = "",
    runs_dir: str | os.PathLike[str] | None = None,
    parent: str | None = None,
    group: str = "",
    command: list[str] | None = None,
    cwd: str | None = None,
    queue: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Start a run that outlives this process, and return once its supervisor listens.

    Relative paths and the user's own modules are searched for in `cwd`, by default the current
    folder. `environment` is added to that of this process. With `queue` the run waits until its
    devices are free; without, it starts even if other runs use them. `parent` is the id of the run
    that it continues, `group` that of its sweep, `command` what the record calls its command line.
    The code that the config names is trusted from now on.

    Raises ConfigError before anything is started, RunsFolderError, or DistrainError if the
    supervisor fails or the queue cannot be used.
    """
    plan = check(config, cwd)
    if plan.scheduled and (problems := submission_problems(config.slurm.partition)):
        raise ConfigError(problems)
    if queue:
        # It loads psutil, which other launches do not need.
        from distrain.runners.supervision import device_queue

        device_queue.queue_folder()
    trust.remember(config, cwd)
    folder = create_run(
        runs_folder(runs_dir, cwd),
        config,
        plan=plan,
        word=name or config.script.name or config.strategy,
        command=sys.argv if command is None else command,
        parent=parent,
        group=group,
        meta=Meta(name=name) if name else None,
        queue=queue,
    )
    if plan.scheduled:  # a new supervisor may have to control its job
        trust.remember(config, cwd, folder.name)
    if reason := _start_supervisor(folder, cwd, environment):
        _record_failure(folder, reason)
        raise DistrainError(f"{reason}; see {log_path(folder, 'supervisor')}")
    return Run(Record(folder))


def _start_supervisor(
    folder: Path, cwd: str | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Return why the supervisor of a run did not start, or an empty string."""
    log = log_path(folder, "supervisor")
    return session_process.start(
        "the supervisor", SUPERVISOR, str(folder), log=log, cwd=cwd, environment=environment
    )


def _record_failure(folder: Path, reason: str) -> None:
    """Mark a run whose supervisor did not start as failed."""
    error = RunError(rank=None, type="SupervisorLost", message=reason)
    failed = structs.replace(read_state(folder), status="failed", reason=reason, error=error)
    with suppress(OSError):
        write_state(folder, failed)


def find(wanted: str, runs_dir: str | os.PathLike[str] | None = None) -> Run:
    """Return the run with this path, id, unique prefix of an id or name, or the `latest`.

    Of several runs with one name it is the newest. Raises RunNotFoundError.
    """
    folder = runs_folder(runs_dir)
    return run_at(wanted, folder) or choose(wanted, all_runs(folder), folder)


def run_at(wanted: str, runs_dir: Path) -> Run | None:
    """Return the run whose folder has this path, or whose id in `runs_dir` is this, or None."""
    folder = next(folders_of(wanted, runs_dir, "run.json"), None)
    return Run(Record(folder)) if folder else None


def all_runs(runs_dir: str | os.PathLike[str] | None = None) -> list[Run]:
    """Return every run in the folder, oldest first."""
    return [Run(record) for record in list_records(runs_folder(runs_dir))]
