"""The small files of a run's folder: run.json, meta.json, and how both are kept whole.

Owns the layout of `runs/<run_id>/`. What was measured lies in metrics.db: see `record.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from runners import words
from runners.config import RunConfig
from runners.errors import ConfigError, DistrainError, RunsFolderError
from runners.events import GPUS_OF_A_HOST, Facts, Job
from runners.plan import Plan
from runners.processes import is_running

FORMAT = 1
Status = Literal["queued", "starting", "running", "stopping", "completed", "failed", "stopped"]
LIVE: tuple[Status, ...] = ("queued", "starting", "running", "stopping")
JOURNAL = "journal.ndjson"  # of a run whose job records it: see journal.py
LAUNCH_S = 60.0  # a run that has no supervisor after this long will never have one

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

LOST = "the supervisor is gone (killed?); everything recorded until then is here"
UNFOLLOWED = "nobody follows its job now; `distrain watch {}` takes it up"
NEVER_STARTED = "the supervisor never started; logs/supervisor.log may say why"


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure of a run; `collateral` ranks died of its death.

    `rank` is None where no rank is to blame; `host` is where that ran, in a run of several;
    `usage` marks an error of the configuration.
    """

    rank: int | None
    type: str
    message: str
    traceback: str = ""
    step: int = 0
    collateral: list[int] = []
    usage: bool = False
    host: str = ""

    @property
    def who(self) -> str:
        """ "rank 3 on node2"."""
        return f"rank {self.rank}{f' on {self.host}' if self.host else ''}"

    @property
    def log(self) -> str:
        """The name of the log that tells most of it."""
        if self.rank is not None:
            return f"rank-{self.rank}"
        return "launcher" if self.type in ("LauncherFailed", "JobEnded") else "supervisor"


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """run.json. Times are Unix seconds; `supervisor_started` is psutil's create_time, so that
    a reused pid is not taken for the supervisor. `waiting_for` are sentences, while it is
    queued or hosts have still to join; `summary` is there once the run has ended. `hosts` are the
    names of the machines that train, by the number that samples have; `job` is the scheduler's
    word of it, where there is one; `attempts` how often the ranks were started anew.
    """

    run_id: str
    format: int = FORMAT
    status: Status = "starting"
    created: float
    started: float | None = None
    ended: float | None = None
    host: str = ""
    hosts: list[str] = []
    job: Job | None = None
    attempts: int = 0
    supervisor_pid: int | None = None
    supervisor_started: float | None = None
    command: list[str] = []
    parent: str | None = None
    plan: Plan | None = None
    facts: Facts | None = None
    provenance: dict[str, Any] = {}
    error: RunError | None = None
    reason: str = ""
    waiting_for: list[str] = []
    socket: str = ""
    summary: dict[str, Any] | None = None

    @property
    def live(self) -> bool:
        return self.status in LIVE

    def machine(self, number: int) -> str:
        """What the host of a sample is called: "the host", or of several "node-07"."""
        several = len(self.hosts) > 1 and number < len(self.hosts)
        return self.hosts[number] if several else "the host"

    def gpu(self, key: int) -> str:
        """What the GPU of a sample is called: "GPU 0", or of several hosts "GPU 0 of node-07"."""
        number, index = divmod(key, GPUS_OF_A_HOST)
        return f"GPU {index} of {self.machine(number)}" if len(self.hosts) > 1 else f"GPU {index}"


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """meta.json: what people say of a run. Written by viewers, never by the run itself."""

    name: str = ""
    notes: str = ""
    tags: list[str] = []
    pinned: bool = False


class _Format(msgspec.Struct):
    format: int


def new_run_id(word: str, now: float | None = None) -> str:
    """Sortable by time (UTC) and short: `20261121-044117-ddp-x7k2`."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    slug = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:24].rstrip("-") or "run"
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(4))
    return f"{stamp}-{slug}-{suffix}"


def short_id(run_id: str) -> str:
    """An id without its time: "ddp-x7k2"."""
    day, _, rest = run_id.partition("-")
    clock, _, rest = rest.partition("-")
    return rest if day.isdigit() and clock.isdigit() and rest else run_id


def _word(run_id: str) -> str:
    """What the id was made of; of a folder that was named by hand, all of it."""
    short = short_id(run_id)
    return run_id if short == run_id else short.rpartition("-")[0] or run_id


def told_apart(known: Sequence[tuple[str, str]]) -> list[str]:
    """What to call runs of which name (perhaps empty) and id are known: the name, else the word of
    the id, with the end of the id where two are called alike.
    """
    plain = [name or _word(run_id) for name, run_id in known]
    twice = Counter(plain)
    return [
        f"{name} {run_id[-4:]}" if twice[name] > 1 else name
        for name, (_, run_id) in zip(plain, known, strict=True)
    ]


def create_run(
    runs_dir: Path,
    config: RunConfig,
    *,
    word: str,
    plan: Plan | None = None,
    command: list[str] | None = None,
    parent: str | None = None,
    meta: Meta | None = None,
    queue: bool = False,
) -> Path:
    """Make the folder of a new run with its first run.json, as "starting" or "queued".

    `word` (preset or strategy) goes into the id. Raises RunsFolderError.
    """
    now = time.time()
    run_id = new_run_id(word, now)
    folder = runs_dir / run_id
    try:
        state = RunState(
            run_id=run_id,
            status="queued" if queue else "starting",
            created=now,
            host=socket.gethostname(),
            command=command or [],
            parent=parent,
            plan=plan,
        )
        with make_folder(folder, config, state):
            if meta is not None:
                write_meta(folder, meta)
    except OSError as error:
        raise RunsFolderError(
            f"cannot write to the runs folder {runs_dir}: {error.strerror}; "
            "choose another with --runs-dir or $DISTRAIN_RUNS_DIR"
        ) from None
    return folder


@contextlib.contextmanager
def make_folder(folder: Path, config: RunConfig, state: RunState) -> Iterator[None]:
    """A run's folder, whole or not at all; run.json comes last, after what is done in the block.

    Raises OSError.
    """
    folder.mkdir(parents=True)
    try:
        (folder / "logs").mkdir()
        (folder / "checkpoints").mkdir()
        write_atomically(folder / "config.toml", config.to_toml().encode())
        yield
        write_state(folder, state)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Readers see the old file or the new one, whole; if `durable`, even after a power cut."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_state(folder: Path, state: RunState) -> None:
    write_atomically(folder / "run.json", _pretty(state))


def read_state(folder: Path) -> RunState:
    """run.json as it was written; raises DistrainError where it is none of ours."""
    try:
        data = (folder / "run.json").read_bytes()
    except OSError as error:
        why = "there is no run.json in it" if folder.is_dir() else error.strerror
        raise not_a_record(folder, why) from None
    try:
        written = msgspec.json.decode(data, type=_Format).format
        if written != FORMAT:
            age = "a newer" if written > FORMAT else "an older"
            raise DistrainError(
                f"{folder} was written by {age} distrain "
                f"(format {written}, this one reads format {FORMAT})"
            )
        state = msgspec.json.decode(data, type=RunState)
        return state if _is_sound(state.summary) else msgspec.structs.replace(state, summary=None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise not_a_record(folder, f"its run.json is broken ({error})") from None


class _Summary(msgspec.Struct):
    """What readers take of a summary."""

    strategy: str = ""
    launcher: str = ""
    precision: str = ""
    steps: int | None = None
    epochs: int | None = None
    samples_per_s: float | None = None
    duration_s: float | None = None
    eval: dict[str, float | None] | None = None


def _is_sound(summary: dict[str, Any] | None) -> bool:
    """Whether a summary is as we write it; one that is not can be made again."""
    try:
        msgspec.convert(summary or {}, _Summary)
    except msgspec.ValidationError:
        return False
    return True


def read_meta(folder: Path) -> Meta:
    """meta.json, or an empty one: what people noted must never keep a run from opening."""
    try:
        return noted(folder)
    except DistrainError:
        return Meta()


def noted(folder: Path) -> Meta:
    """meta.json as far as a terminal can show it; raises DistrainError where it is broken."""
    path = folder / "meta.json"
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=Meta)
    except FileNotFoundError:
        return Meta()
    except OSError as error:
        raise DistrainError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError):
        raise DistrainError(f"{path} is broken: mend or remove it, it is not replaced") from None
    return msgspec.structs.replace(
        meta,
        name=words.harmless(meta.name),
        notes="\n".join(map(words.harmless, meta.notes.splitlines())),
        tags=[words.harmless(tag) for tag in meta.tags],
    )


def check_printable(*noted: str) -> None:
    """Raises ConfigError for what a terminal would take for orders."""
    for text in noted:
        if words.gives_orders(text):
            raise ConfigError(f"a name, note or tag is printable text, not {text!r}")


def write_meta(folder: Path, meta: Meta) -> None:
    """Raises ConfigError for what a terminal would take for orders."""
    check_printable(meta.name, *meta.notes.splitlines(), *meta.tags)
    write_atomically(folder / "meta.json", _pretty(meta))


def change_meta(folder: Path, **changes: Any) -> Meta:
    """Raises DistrainError where that would lose some of it, RunsFolderError."""
    meta = msgspec.structs.replace(noted(folder), **changes)
    try:
        write_meta(folder, meta)
    except OSError as error:
        raise RunsFolderError(f"cannot write to {folder}: {error.strerror}") from None
    return meta


def not_a_record(folder: Path, why: str | None) -> DistrainError:
    return DistrainError(f"{folder} is not a record: {why}")


def as_it_is(state: RunState, name: str) -> RunState:
    """The state with a live status corrected where its supervisor is gone, or has a folder of
    another `name`.

    Only a supervisor of this host can be looked for; elsewhere run.json is believed.
    """
    if not state.live:
        return state
    if state.run_id != name:
        reason = f"copied or renamed from {state.run_id} while that was {state.status}"
    elif state.host != socket.gethostname():
        return state
    elif state.supervisor_pid is None:
        if time.time() - state.created < LAUNCH_S:
            return state
        reason = NEVER_STARTED
    elif is_supervised(state):
        return state
    else:
        reason = LOST
    error = RunError(rank=None, type="SupervisorLost", message=reason)
    return msgspec.structs.replace(
        state, status="failed", error=error, reason=reason, waiting_for=[]
    )


def is_supervised(state: RunState) -> bool:
    """Whether there is the supervisor's process, which outlives its run by a moment."""
    pid = state.supervisor_pid
    return pid is not None and is_running(pid, state.supervisor_started)


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
