"""The small files of a run's folder: what a list of runs shows, without the measurements.

Lists of thousands of runs are read from here. The database, its series and their readers are not
loaded: see `reader`.
"""

from __future__ import annotations

import errno
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from distrain.runners import formatting
from distrain.runners.errors import ConfigError, DistrainError
from distrain.runners.records import job_status
from distrain.runners.records.checkpoint_files import last_checkpoint
from distrain.runners.records.logs import read_crash
from distrain.runners.records.meta import Meta, change_meta, read_meta
from distrain.runners.records.state import (
    RunState,
    Status,
    newer_record,
    not_a_record,
    read_state,
    unreadable,
)
from distrain.runners.records.supervisor_check import (
    LOST,
    LOST_BY_SIGNAL,
    LOST_READ_ONLY,
    UNSUPERVISED,
    WRITTEN,
    check_supervisor,
    is_supervised,
)
from distrain.runners.system.files import last_modified, read_regular

if TYPE_CHECKING:
    from distrain.runners.config.schema import RunConfig

JOURNAL = "journal.ndjson"  # where a job records its run


class RunFolder:
    """A run's state, meta data, config and checkpoint; read-only except for `set_meta`.

    Raises DistrainError where the folder is not a record or has a format that this version cannot
    read. Everything is read when asked for, so a live run can be read repeatedly.
    """

    def __init__(self, folder: Path | str) -> None:
        self.dir = Path(folder).absolute()
        self._cached_state: tuple[tuple[int, int, int], RunState] | None = None
        # The folder's name and not the state's run_id, to distinguish a copy from the original.
        self.id = self.dir.name
        if formatting.has_control_characters(self.id):
            raise not_a_record(self.dir, "its name has control characters; rename the folder")
        self.created = self._stored_state().created

    @property
    def runs_dir(self) -> Path:
        """The runs folder that the run belongs to; of a bench's run, the one with the bench."""
        bench = self.dir.parent.parent
        return bench.parent if os.path.lexists(bench / "bench.json") else self.dir.parent

    @property
    def state(self) -> RunState:
        """run.json, with a live status corrected where the supervisor is gone.

        The run has then failed with SupervisorLost, also where the supervisor writes to another
        folder, and has ended when the record was last written. A run whose job records it stays
        live as long as the job may continue, and `reason` says that the supervisor is missing.
        """
        stored, state = self._stored_and_checked_state()
        if self._has_lost_supervisor(state) and state.job and not job_status.has_ended(state.job):
            return msgspec.structs.replace(stored, reason=UNSUPERVISED.format(self.id))
        if stored.live and not state.live and state.started:
            ended = max(state.started, last_modified(self.dir, WRITTEN))
            state = msgspec.structs.replace(state, ended=ended)
        if state.error and state.reason == LOST:
            reason = self._explain_loss()
            error = msgspec.structs.replace(state.error, message=reason)
            state = msgspec.structs.replace(state, reason=reason, error=error)
        return state

    def _explain_loss(self) -> str:
        if self._is_read_only:
            return LOST_READ_ONLY
        signal_name = read_crash(self.dir)
        return LOST_BY_SIGNAL.format(signal_name) if signal_name else LOST

    @property
    def _is_read_only(self) -> bool:
        """Whether no supervisor could have written how the run ended."""
        # What a mount tells is not enough: Linux 6.12 keeps "rw" where ext4 has had an error.
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            os.close(os.open(self.dir / "run.json", flags))
        except OSError as error:
            return error.errno == errno.EROFS
        return False

    @property
    def is_unsupervised(self) -> bool:
        """Whether the supervisor is gone but a job records, or has recorded, the run."""
        _, state = self._stored_and_checked_state()
        return self._has_lost_supervisor(state)

    def _has_lost_supervisor(self, state: RunState) -> bool:
        lost = state.error is not None and state.reason == LOST
        return lost and state.job is not None and self.has_journal

    @property
    def has_journal(self) -> bool:
        """Whether the run's job records it in a journal, so that it needs no supervisor.

        So does a job that starts when no supervisor answers it, unless it may only report by TCP.
        """
        report = self.config.slurm.report
        job = self._stored_state().job
        will_start = job is not None and job.state in job_status.WAITING and report != "tcp"
        return will_start or report == "files" or (self.dir / JOURNAL).exists()

    @property
    def status(self) -> Status:
        return self.state.status

    @property
    def live(self) -> bool:
        return self.state.live

    @property
    def meta(self) -> Meta:
        return read_meta(self.dir)

    @property
    def name(self) -> str:
        """The name a person gave the run, or an empty one."""
        return self.meta.name

    def set_meta(self, **changes: Any) -> Meta:
        """Change name, notes, tags or pinned.

        Raises DistrainError where meta.json is broken, so that nothing in it is lost.
        """
        return change_meta(self.dir, **changes)

    @property
    def last_checkpoint(self) -> Path | None:
        """The last checkpoint that the run has written; a file of this record."""
        return last_checkpoint(self.dir / "checkpoints")

    @property
    def resumes_from(self) -> str | None:
        """The checkpoint from which a resumed run continues; None if there is none.

        A run that has not written one yet continues from that with which it began itself.
        """
        if own := self.last_checkpoint:
            return str(own)
        load, keep = self.config.checkpoint.load, self.config.checkpoint.keep
        if not load or not keep:  # with 0 it may have trained without a checkpoint
            return None
        is_gone = os.path.isabs(load) and not os.path.isfile(load)
        return None if is_gone else load

    @cached_property
    def config(self) -> RunConfig:
        """config.toml; raises DistrainError where it is missing or broken."""
        from distrain.runners.config.schema import RunConfig  # not needed to list runs

        try:
            text = read_regular(self.dir / "config.toml").decode()
            if not text.strip():  # it would be read as a config with all defaults
                raise not_a_record(self.dir, "its config.toml is empty")
            return RunConfig.from_toml(text)
        except OSError as error:
            raise unreadable(self.dir, "config.toml", error) from None
        except (ConfigError, UnicodeDecodeError) as error:
            if isinstance(error, ConfigError) and error.has_only_unknown_keys:
                why = f"config.toml: unknown key {error.problems[0][0]}"
                raise newer_record(self.dir, why) from None
            raise not_a_record(self.dir, f"its config.toml is not valid: {error}") from None

    def _stored_and_checked_state(self) -> tuple[RunState, RunState]:
        stored = self._stored_state()
        checked = check_supervisor(stored, self.dir)
        if stored.live and not checked.live:  # its supervisor may have ended it since it was read
            stored = self._stored_state()
            checked = check_supervisor(stored, self.dir)
        return stored, checked

    def _stored_state(self) -> RunState:
        """Return what run.json has; where it was deleted or damaged, what it had, as long as its
        supervisor, which writes it again within seconds, is there.
        """
        try:
            stat = os.lstat(f"{self.dir}/run.json")
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except OSError:
            stamp = (0, 0, 0)
        known = self._cached_state
        if known is None or known[0] != stamp:
            try:
                known = self._cached_state = (stamp, read_state(self.dir))
            except DistrainError:
                if known is None or not (os.path.lexists(self.dir) and is_supervised(known[1])):
                    raise
        return known[1]
