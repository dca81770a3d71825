"""Claims: which run of this user has which devices of this machine, and which run waits for them.

Every supervisor holds one file for as long as it lives. What counts is the lock on it, which the
kernel takes away with the process, however that ends. Nobody manages the queue: each supervisor
that waits looks for itself, one at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import msgspec
import psutil

from runners import words
from runners.errors import DistrainError
from runners.events import GpuSample
from runners.hardware import GpuSampler
from runners.plan import Plan, cores

FOLDER = "DISTRAIN_CLAIMS_DIR"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a live run has, or waits for if `waiting`.

    `gpus` maps UUIDs to NVML's indices; `cores` is ranks × threads of a run on CPU; `place`
    counts the claims in the order in which they were made.
    """

    run_id: str
    dir: str
    name: str = ""
    pid: int = 0
    gpus: dict[str, int] = {}
    cores: int = 0
    waiting: bool = False
    place: int = 0

    @classmethod
    def of(cls, plan: Plan, folder: Path, name: str = "", waiting: bool = False) -> Claim:
        """What the run of a record folder takes of this host by its plan."""
        if plan.scheduled:
            return cls(run_id=folder.name, dir=str(folder), name=name, waiting=waiting)
        gpus = {device.uuid: device.index for device in plan.devices if device.kind == "cuda"}
        return cls(
            run_id=folder.name,
            dir=str(folder),
            name=name,
            gpus=gpus,
            cores=0
            if gpus
            else (len(plan.devices) if plan.tasks else plan.ranks_per_node) * plan.threads,
            waiting=waiting,
        )

    def who(self, asks: Claim) -> str:
        """What the run is called, and where it is for one of another runs folder."""
        name = f"run {self.run_id} ({self.name})" if self.name else f"run {self.run_id}"
        home, other = (os.path.dirname(os.path.realpath(each.dir)) for each in (self, asks))
        return name if home == other or not self.dir else f"{name} in {home}"


def who_has(plan: Plan, runs_dir: Path) -> list[str]:
    """Why a run of this plan would have to wait now, in sentences; empty where it would start.

    Raises DistrainError where the folder of claims cannot be used.
    """
    wanted = Claim.of(plan, runs_dir / "asks")
    with contextlib.ExitStack() as stack:
        gpus = stack.enter_context(GpuSampler(wanted.gpus)) if wanted.gpus else None
        samples = gpus.sample() if gpus else []
        place = folder()
        with _alone(place):
            others = _living(place)
    last = max((other.place for other in others), default=0) + 1
    wanted = msgspec.structs.replace(wanted, place=last)
    return in_the_way(wanted, others, strangers(samples, {other.pid for other in others}))


def who_has_any(plans: Iterable[Plan], runs_dir: Path) -> list[str]:
    """`who_has` of several plans, each sentence once."""
    return list(dict.fromkeys(why for plan in plans for why in who_has(plan, runs_dir)))


class Holder:
    """A run's own claim, held until it is closed or this process ends.

    Raises DistrainError where the folder of claims cannot be used.
    """

    def __init__(self, claim: Claim) -> None:
        self._folder = folder()
        self._path = self._folder / f"{claim.run_id}.json"
        with _alone(self._folder):
            last = max((other.place for other in _living(self._folder)), default=0)
            self.claim = msgspec.structs.replace(claim, place=last + 1, pid=os.getpid())
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._write()
            except OSError as error:
                os.close(self._file)
                raise _refused(self._folder, error.strerror) from None
        self._gpus = GpuSampler(claim.gpus) if claim.waiting and claim.gpus else None

    def take(self) -> list[str]:
        """Have the devices from now on, unless something is in the way: that, in sentences."""
        self.touch()
        samples = self._gpus.sample() if self._gpus else []
        with _alone(self._folder):
            others = [other for other in _living(self._folder) if other.run_id != self.claim.run_id]
            found = strangers(samples, {other.pid for other in others})
            if obstacles := in_the_way(self.claim, others, found):
                return obstacles
            self.claim = msgspec.structs.replace(self.claim, waiting=False)
            self._write()
        self._close_gpus()
        return []

    def touch(self) -> None:
        """Keep the file from those who clear away what is old."""
        os.utime(self._file)

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError), _alone(self._folder):
            self._path.unlink()
        os.close(self._file)
        self._close_gpus()

    def __enter__(self) -> Holder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _close_gpus(self) -> None:
        if self._gpus:
            self._gpus.close()
            self._gpus = None

    def _write(self) -> None:
        data = msgspec.json.encode(self.claim)
        os.pwrite(self._file, data, 0)
        os.truncate(self._file, len(data))


# --- who is in the way -------------------------------------------------------------------------


def in_the_way(
    claim: Claim,
    others: Iterable[Claim],
    strangers: dict[str, list[str]],
    there: int | None = None,
) -> list[str]:
    """Why a claim has to wait, in sentences; empty where its run may start.

    `strangers` are as from the function of that name, `there` the cores of this machine.
    """
    others = sorted(others, key=lambda other: other.place)
    running = [other for other in others if not other.waiting]
    before = [other for other in others if other.waiting and other.place < claim.place]
    return [
        *_on_gpus(claim, running, before, strangers),
        *_on_cores(claim, running, before, cores() if there is None else there),
    ]


def _on_gpus(
    claim: Claim, running: list[Claim], before: list[Claim], strangers: dict[str, list[str]]
) -> Iterator[str]:
    for uuid, index in claim.gpus.items():
        having = [other.who(claim) for other in running if uuid in other.gpus]
        for who in having + strangers.get(uuid, []):
            yield f"GPU {index}: {who} has it"
        if waiting := [other for other in before if uuid in other.gpus]:
            yield f"GPU {index}: {_before(claim, waiting)}"


def _on_cores(claim: Claim, running: list[Claim], before: list[Claim], there: int) -> Iterator[str]:
    having = [other for other in running if other.cores]
    waiting = [other for other in before if other.cores]
    ahead = sum(other.cores for other in having + waiting)
    # One that wants more than there is must not wait for ever: it needs to be alone.
    if not claim.cores or not ahead or ahead + claim.cores <= there:
        return
    if having:
        taken = sum(other.cores for other in having)
        has = "has" if len(having) == 1 else "have"
        yield (
            f"CPU: {_names(claim, having)} {has} {words.things(taken, 'core')}, this run wants "
            f"{claim.cores:,}, and there {'is' if there == 1 else 'are'} {there:,}"
        )
    if waiting:
        yield f"CPU: {_before(claim, waiting)}"


def _before(claim: Claim, waiting: Sequence[Claim]) -> str:
    return f"{_names(claim, waiting)} {'is' if len(waiting) == 1 else 'are'} before it in the queue"


def _names(claim: Claim, others: Sequence[Claim], most: int = 3) -> str:
    names = [other.who(claim) for other in others]
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def strangers(samples: Iterable[GpuSample], supervisors: Collection[int]) -> dict[str, list[str]]:
    """By UUID, the processes on each GPU that no run of these supervisors has started."""
    return {
        sample.uuid: [who for pid in sample.processes if (who := _stranger(pid, supervisors))]
        for sample in samples
    }


def _stranger(pid: int, supervisors: Collection[int]) -> str:
    """What a process is called; empty where it belongs to a run."""
    try:
        process = psutil.Process(pid)
        if any(each.pid in supervisors for each in (process, *process.parents())):
            return ""
        return f"process {pid} ({process.name()} of {process.username()}, not a run of yours)"
    except psutil.Error:  # of another container, or just gone
        return f"process {pid} (which cannot be looked at from here)"


# --- the folder --------------------------------------------------------------------------------


def folder() -> Path:
    """The folder of all claims of this user, made where there is none; raises DistrainError.

    Neither $XDG_RUNTIME_DIR, which goes with the last login, nor $TMPDIR, which differs between
    shells: all runs have to agree on it, for as long as they live.
    """
    root = Path(os.environ.get(FOLDER) or f"/tmp/distrain-{os.getuid()}")
    for path in (root, root / "claims"):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
        except OSError as error:
            raise _refused(path, error.strerror) from None
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not ours or stat.S_IMODE(found.st_mode) & 0o022:
            raise _refused(path, "it is not a folder that only you can write to")
    return root / "claims"


def _refused(path: Path, why: str | None) -> DistrainError:
    return DistrainError(f"the queue cannot use {path}: {why}; name another folder by ${FOLDER}")


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Nobody else of this user looks at claims or changes one meanwhile."""
    gate = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
    finally:
        os.close(gate)


def _living(place: Path) -> list[Claim]:
    """All claims that are held; the others are swept away. Only to be called when `_alone`."""
    found = []
    for path in place.glob("*.json"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(msgspec.DecodeError):  # of another version
                    found.append(msgspec.json.decode(file.read(), type=Claim))
            else:
                path.unlink()
    return found
