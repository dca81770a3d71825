"""Which devices of this host are free: which run of this user uses them, and which runs wait.

Each supervisor keeps one file, its entry, locked while it runs. The kernel releases the lock when
the process ends. There is no manager: waiting supervisors check the queue in turn.

All reading and writing of entries happens under `exclusive_access`. A supervisor owns its entry
except for the position, which others may change (`queue_order`); so it reads its entry again, under
that access, before it decides whether to start.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from distrain.runners import formatting
from distrain.runners.config.plan import Plan
from distrain.runners.errors import DistrainError
from distrain.runners.protocol.events import GpuSample
from distrain.runners.system.files import lock_within
from distrain.runners.system.host import count_cores
from distrain.runners.system.private_folder import private_folder, unusable
from distrain.runners.system.processes import is_suspended, lock_holder
from distrain.runners.system.telemetry import GpuSampler

MAX_NAMED_RUNS = 3  # in one sentence
LOCK_S = 3.0  # for other processes, which hold the lock for milliseconds
RETURN_S = 3.0  # for other runs to write their entries again too, where all were deleted


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a live run uses, or waits for if `waiting`.

    `gpus` maps UUIDs to NVML's indices; `cores` is ranks × threads of a run on CPU; `position`
    numbers the entries in the order in which they are served. `movable`: its supervisor follows
    changes of the position, which those of earlier versions do not.
    """

    run_id: str
    dir: str
    name: str = ""
    pid: int = 0
    gpus: dict[str, int] = {}
    cores: int = 0
    waiting: bool = False
    movable: bool = False
    position: int = msgspec.field(default=0, name="place")

    @classmethod
    def of(cls, plan: Plan, folder: Path, name: str = "", waiting: bool = False) -> QueueEntry:
        """Return what the run in a record folder uses of this host by its plan."""
        gpus = {}
        used_cores = 0
        if not plan.scheduled:
            gpus = {device.uuid: device.index for device in plan.devices if device.kind == "cuda"}
            if not gpus:
                ranks_here = len(plan.devices) if plan.tasks else plan.ranks_per_node
                used_cores = ranks_here * plan.threads
        return cls(
            run_id=folder.name,
            dir=str(folder),
            name=name,
            gpus=gpus,
            cores=used_cores,
            waiting=waiting,
            movable=True,
        )

    @property
    def order(self) -> tuple[int, str]:
        """What entries are sorted by; unique, whatever a process that was killed left behind."""
        return self.position, self.run_id

    def label_for(self, other: QueueEntry) -> str:
        """Return the run's name for a message about `other`: with its folder if they differ."""
        label = f"run {self.run_id} ({self.name})" if self.name else f"run {self.run_id}"
        own_folder = os.path.dirname(os.path.realpath(self.dir))
        other_folder = os.path.dirname(os.path.realpath(other.dir))
        if not self.dir or own_folder == other_folder:
            return label
        return f"{label} in {own_folder}"


def find_obstacles(plan: Plan, runs_dir: Path) -> list[str]:
    """Return why a run of this plan would have to wait now; empty where it would start.

    Raises DistrainError where the queue's folder cannot be used.
    """
    wanted = QueueEntry.of(plan, runs_dir / "new")
    with contextlib.ExitStack() as stack:
        gpus = stack.enter_context(GpuSampler(wanted.gpus)) if wanted.gpus else None
        samples = gpus.sample() if gpus else []
        folder = queue_folder()
        with exclusive_access(folder):
            others = live_entries(folder)
    last = max((other.position for other in others), default=0)
    wanted = msgspec.structs.replace(wanted, position=last + 1)
    programs = foreign_processes(samples, {other.pid for other in others})
    return obstacles_for(wanted, others, programs)


def find_obstacles_of_any(plans: Iterable[Plan], runs_dir: Path) -> list[str]:
    """Return the obstacles of several plans, each sentence once. Raises DistrainError."""
    found = (text for plan in plans for text in find_obstacles(plan, runs_dir))
    return list(dict.fromkeys(found))


who_has = find_obstacles  # its name in earlier versions, which their documentation has


class DeviceLease:
    """A run's entry in the queue, held until it is closed or this process ends.

    Raises DistrainError as `exclusive_access` does, and where the queue's folder cannot be used.
    """

    def __init__(self, entry: QueueEntry, patience_s: float | None = None) -> None:
        self._folder = queue_folder()
        self._path = self._folder / f"{entry.run_id}.json"
        self._returned = -math.inf
        self._file_lock = threading.Lock()  # one thread may refresh while another closes
        with exclusive_access(self._folder, patience_s):
            last = max((other.position for other in live_entries(self._folder)), default=0)
            self.entry = msgspec.structs.replace(entry, position=last + 1, pid=os.getpid())
            self._file = self._create()
        self._gpus = GpuSampler(entry.gpus) if entry.waiting and entry.gpus else None

    def acquire(self) -> list[str]:
        """Use the devices from now on, or return the obstacles in sentences.

        A queue that is locked, or whose folder cannot be used any more, is such an obstacle, and so
        is one from which entries were just deleted.
        """
        samples = self._gpus.sample() if self._gpus else []
        try:
            self.refresh()
            if time.monotonic() - self._returned < RETURN_S:
                return [f"entries in {self._folder} were deleted: other runs write theirs again"]
            return self._acquire(samples)
        except DistrainError as error:
            return [str(error)]
        except OSError as error:  # such as of a full disk
            return [str(unusable(self._folder, error.strerror))]

    def _acquire(self, samples: Sequence[GpuSample]) -> list[str]:
        with exclusive_access(self._folder):
            entries = live_entries(self._folder)
            others = [other for other in entries if other.run_id != self.entry.run_id]
            own = (entry for entry in entries if entry.run_id == self.entry.run_id)
            self.entry = next(own, self.entry)  # its position may have changed
            programs = foreign_processes(samples, {other.pid for other in others})
            if obstacles := obstacles_for(self.entry, others, programs):
                return obstacles
            self.entry = msgspec.structs.replace(self.entry, waiting=False)
            write_entry(self._file, self.entry)
        if self._gpus:
            self._gpus.close()
            self._gpus = None
        return []

    def refresh(self) -> None:
        """Touch the file, so that programs that clean /tmp do not take it for an old one.

        Where it was deleted nevertheless, write it again: other runs would take the devices for
        free. Raises DistrainError where the queue's folder cannot be used.
        """
        with self._file_lock:
            os.utime(self._file)
            if os.fstat(self._file).st_nlink:
                return
            queue_folder()
            with exclusive_access(self._folder):
                file = self._create()
            os.close(self._file)
            self._file = file
            self._returned = time.monotonic()

    def close(self) -> None:
        """Remove the entry. A GpuSampler that is still open ends with the process."""
        with self._file_lock:
            with contextlib.suppress(DistrainError, OSError), exclusive_access(self._folder):
                self._path.unlink()
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> DeviceLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> int:
        """Return the descriptor of the locked file with the entry. Needs `exclusive_access`."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            write_entry(file, self.entry)
        except OSError as error:
            os.close(file)
            raise unusable(self._folder, error.strerror) from None
        return file


# --- obstacles ---------------------------------------------------------------------------------


def obstacles_for(
    entry: QueueEntry,
    others: Iterable[QueueEntry],
    programs: Mapping[str, Sequence[str]],
    host_cores: int | None = None,
) -> list[str]:
    """Return why a run has to wait, in sentences; empty where it may start.

    `programs` is as `foreign_processes` returns it, `host_cores` by default that of this host. Runs
    ahead whose supervisors are suspended do not keep free devices idle.
    """
    others = sorted(others, key=lambda other: other.order)
    running = [other for other in others if not other.waiting]
    ahead = [other for other in others if other.waiting and other.order < entry.order]
    cores = count_cores() if host_cores is None else host_cores

    def obstacles(ahead: Sequence[QueueEntry]) -> list[str]:
        found = _gpu_obstacles(entry, running, ahead, programs)
        return [*found, *_cpu_obstacles(entry, running, ahead, cores)]

    if not obstacles([]):  # only now, as it takes time in a long queue
        ahead = [other for other in ahead if not is_suspended(other.pid)]
    return obstacles(ahead)


def _gpu_obstacles(
    entry: QueueEntry,
    running: Sequence[QueueEntry],
    ahead: Sequence[QueueEntry],
    programs: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    for uuid, index in entry.gpus.items():
        users = [other.label_for(entry) for other in running if uuid in other.gpus]
        for user in [*users, *programs.get(uuid, [])]:
            yield f"GPU {index}: in use by {user}"
        if waiting := [other for other in ahead if uuid in other.gpus]:
            yield f"GPU {index}: {_ahead_text(entry, waiting)}"


def _cpu_obstacles(
    entry: QueueEntry,
    running: Sequence[QueueEntry],
    ahead: Sequence[QueueEntry],
    host_cores: int,
) -> Iterator[str]:
    users = [other for other in running if other.cores]
    waiting = [other for other in ahead if other.cores]
    taken = sum(other.cores for other in [*users, *waiting])
    # A run that needs more cores than the host has must not wait forever: it runs alone.
    if not entry.cores or not taken or taken + entry.cores <= host_cores:
        return
    if users:
        used = formatting.plural(sum(other.cores for other in users), "core")
        names = _join_labels(entry, users)
        yield f"CPU: {used} in use by {names}; needs {entry.cores:,} of {host_cores:,}"
    if waiting:
        yield f"CPU: {_ahead_text(entry, waiting)}"


def _ahead_text(entry: QueueEntry, waiting: Sequence[QueueEntry]) -> str:
    verb = "is" if len(waiting) == 1 else "are"
    return f"{_join_labels(entry, waiting)} {verb} ahead in the queue"


def _join_labels(entry: QueueEntry, others: Sequence[QueueEntry]) -> str:
    labels = [other.label_for(entry) for other in others]
    if len(labels) > MAX_NAMED_RUNS:
        named = labels[: MAX_NAMED_RUNS - 1]
        labels = [*named, f"{len(labels) - len(named)} more"]
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last


def foreign_processes(
    samples: Iterable[GpuSample], supervisors: Collection[int]
) -> dict[str, list[str]]:
    """Return, by UUID, the processes on each GPU that none of these supervisors has started."""
    found: dict[str, list[str]] = {}
    for sample in samples:
        labels = [_foreign_label(pid, supervisors) for pid in sample.processes]
        found[sample.uuid] = [label for label in labels if label]
    return found


def _foreign_label(pid: int, supervisors: Collection[int]) -> str:
    """Return what a process is called; empty where it belongs to a run."""
    try:
        process = psutil.Process(pid)
        if any(each.pid in supervisors for each in (process, *process.parents())):
            return ""
        return f"process {pid} ({process.name()} of {process.username()}, not one of your runs)"
    except psutil.Error:  # of another container, or just gone
        return f"process {pid} (not visible from here)"


# --- the folder --------------------------------------------------------------------------------


def queue_folder() -> Path:
    """Return the folder of this user's entries, made where there is none. Raises DistrainError."""
    return private_folder("claims")


@contextlib.contextmanager
def exclusive_access(folder: Path, patience_s: float | None = None) -> Iterator[None]:
    """Keep the other processes of this user from reading or changing entries meanwhile.

    Raises DistrainError where the folder cannot be opened or locked, or where another process does
    not let go of the queue within `patience_s` seconds (default: LOCK_S).
    """
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise unusable(folder, error.strerror) from None
    try:
        try:
            is_locked = lock_within(lock, LOCK_S if patience_s is None else patience_s)
        except OSError as error:  # not every file system has locks
            raise unusable(folder, error.strerror) from None
        if not is_locked:
            holder = f"process {pid}" if (pid := lock_holder(lock)) else "another process"
            raise DistrainError(f"{holder} holds the lock of the queue {folder}")
        yield
    finally:
        os.close(lock)


def write_entry(file: int, entry: QueueEntry) -> None:
    """Write an entry to its open file. Needs `exclusive_access`.

    One call writes all of it, over the whole of what was there: a process that is killed leaves
    the old entry or the new one.
    """
    data = msgspec.json.encode(entry)
    os.pwrite(file, data.ljust(os.fstat(file).st_size), 0)


def live_entries(folder: Path) -> list[QueueEntry]:
    """Return all entries that are held and remove the others. Needs `exclusive_access`."""
    found = []
    for path in folder.glob("*.json"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(msgspec.DecodeError):  # of another version
                    found.append(msgspec.json.decode(file.read(), type=QueueEntry))
            else:
                path.unlink()
    return found
