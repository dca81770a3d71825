"""Horovod, installed where distrain is: one call, told as it goes, honest about what came of it."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from runners.errors import InstallError
from runners.horovod.building import PIP, build, cached, plain_environment, scratch_folder, share_of
from runners.horovod.commands import Commands
from runners.horovod.presence import Presence, cache, presence
from runners.horovod.toolchain import Toolchain, look

# What Horovod imports; torch is never left to pip.
REQUIREMENTS = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4")
LOOK_S = 0.2


class Progress(NamedTuple):
    """`share` of the stage that is done, None where nobody knows; the last `line` printed."""

    stage: str
    share: float | None = None
    line: str = ""


class Installation:
    """`run` it once; `told` hears how far it is. `stop` is for any thread."""

    def __init__(self, told: Callable[[Progress], None]) -> None:
        self._told = told
        self._now = Progress("looking")
        self._commands = Commands(cache() / "build.log", self._heard)

    def stop(self) -> None:
        """End what is under way with all its processes: `run` raises StoppedError."""
        self._commands.stop()

    def run(self) -> str:
        """What came of it, in a sentence. Raises InstallError, StoppedError."""
        self._stage("looking")
        if there := _working():
            return there
        try:
            with self._alone():
                return _working() or self._install(look())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise InstallError(f"{where}{error.strerror}") from error

    def _install(self, toolchain: Toolchain) -> str:
        began = time.monotonic()
        self._pip("installing what Horovod needs", "install", *REQUIREMENTS)
        wheel = cached(toolchain)
        if wheel:
            found = self._try(wheel)
            if not found.why:
                return f"{described(found, toolchain)}; from the cache"
            wheel.unlink()
        found = self._try(wheel := build(toolchain, self._commands, self._stage))
        if found.why:
            wheel.unlink()
            raise InstallError(f"Horovod was built, and yet: {found.why}")
        minutes = (time.monotonic() - began) / 60
        return f"{described(found, toolchain)}; built in {minutes:.1f} minutes"

    def _try(self, wheel: Path) -> Presence:
        self._pip("installing", "install", "--no-deps", "--force-reinstall", str(wheel))
        self._stage("checking")
        return presence(afresh=True)

    def _pip(self, stage: str, *arguments: str) -> None:
        self._stage(stage)
        with scratch_folder() as scratch:
            self._commands.run(stage, [*PIP, *arguments], scratch, plain_environment(scratch))

    def _stage(self, stage: str) -> None:
        self._commands.check()
        self._now = Progress(stage)
        self._told(self._now)

    def _heard(self, line: str) -> None:
        share = share_of(line)
        self._now = self._now._replace(line=line, share=self._now.share if share is None else share)
        self._told(self._now)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Another that builds at the same time is waited for, and its wheel is used."""
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / "lock").open("w") as file:
            while not _locked(file):
                if self._now.stage != "waiting for another build":
                    self._stage("waiting for another build")
                self._commands.wait(LOOK_S)
            self._commands.log.write_text("")
            yield


def described(found: Presence, toolchain: Toolchain) -> str:
    """ "Horovod 0.28.1 for torch 2.13.0, CPU, gloo"."""
    kind = f"CUDA {toolchain.cuda}" if found.cuda else "CPU"
    parts = [f"Horovod {plain(found.version)} for torch {toolchain.torch}", kind, *found.transports]
    return ", ".join(parts)


def plain(version: str) -> str:
    """Without what marks a build of ours."""
    return version.partition("+")[0]


def _working() -> str:
    """What there is to say where nothing has to be done, else nothing."""
    found = presence(afresh=True)
    if found.why:
        return ""
    return f"Horovod {plain(found.version)} ({', '.join(found.transports)}) is installed and works"


def _locked(file: TextIO) -> bool:
    """The lock goes with the process, however that ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
