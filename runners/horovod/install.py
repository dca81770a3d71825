"""Installation of Horovod into the environment of distrain, with progress reports."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from distrain.runners.errors import InstallError
from distrain.runners.horovod.presence import Presence, cache_folder, presence
from distrain.runners.horovod.subprocesses import Commands
from distrain.runners.horovod.toolchain import Toolchain, find_toolchain
from distrain.runners.horovod.wheel import (
    PIP,
    build,
    cached_wheel,
    parse_progress,
    pip_environment,
)
from distrain.runners.system.scratch import scratch_folder

# What Horovod imports. torch is missing here: pip must never change it.
REQUIREMENTS = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4")
LOCK_INTERVAL_S = 0.2
WAITING = "waiting for another build"


class Progress(NamedTuple):
    """The stage of an installation.

    `share`: the part of the stage that is done, from 0 to 1; None if it is not known.
    `line`: the last line that was printed.
    """

    stage: str
    share: float | None = None
    line: str = ""


class Installation:
    """One installation: call `run` once. `on_progress` is called in the same thread."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._progress = Progress("")
        self._commands = Commands(cache_folder() / "build.log", self._on_line)

    def stop(self) -> None:
        """Stop the installation with all its processes: `run` raises InstallStoppedError.

        Any thread may call it.
        """
        self._commands.stop()

    def run(self) -> str:
        """Install Horovod unless it works already; return the result as a sentence.

        Raises InstallError, InstallStoppedError.
        """
        self._begin_stage("checking the installed Horovod")
        if result := _describe_if_working():
            return result
        try:
            with self._exclusive():
                # Another process may have installed it in the meantime.
                return _describe_if_working() or self._install(find_toolchain())
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise InstallError(f"{where}{error.strerror}") from error

    def _install(self, toolchain: Toolchain) -> str:
        began = time.monotonic()
        self._pip("installing the requirements of Horovod", "install", *REQUIREMENTS)
        wheel = cached_wheel(toolchain)
        if wheel:
            installed = self._install_wheel(wheel)
            if not installed.why:
                return f"{_describe(installed, toolchain)}; from the cache"
            wheel.unlink()
        wheel = build(toolchain, self._commands, self._begin_stage)
        installed = self._install_wheel(wheel)
        if installed.why:
            wheel.unlink()
            raise InstallError(f"Horovod was built, but does not work: {installed.why}")
        minutes = (time.monotonic() - began) / 60
        return f"{_describe(installed, toolchain)}; built in {minutes:.1f} minutes"

    def _install_wheel(self, wheel: Path) -> Presence:
        self._pip("installing", "install", "--no-deps", "--force-reinstall", str(wheel))
        self._begin_stage("checking")
        return presence(refresh=True)

    def _pip(self, stage: str, *arguments: str) -> None:
        self._begin_stage(stage)
        with scratch_folder("horovod-", for_sockets=False) as scratch:
            self._commands.run(stage, [*PIP, *arguments], scratch, pip_environment(scratch))

    def _begin_stage(self, stage: str) -> None:
        self._commands.check()
        self._progress = Progress(stage)
        self._on_progress(self._progress)

    def _on_line(self, line: str) -> None:
        share = parse_progress(line)
        if share is None:
            share = self._progress.share
        self._progress = self._progress._replace(line=line, share=share)
        self._on_progress(self._progress)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock of all installations; wait until another one has ended.

        The second one then uses the wheel of the first.
        """
        cache_folder().mkdir(parents=True, exist_ok=True)
        with (cache_folder() / "lock").open("w") as file:
            while not _try_lock(file):
                if self._progress.stage != WAITING:
                    self._begin_stage(WAITING)
                self._commands.wait(LOCK_INTERVAL_S)
            self._commands.log.write_text("")
            yield


def _describe(installed: Presence, toolchain: Toolchain) -> str:
    """Return, for example, "Horovod 0.28.1 for torch 2.13.0, CPU, gloo"."""
    kind = f"CUDA {toolchain.cuda}" if installed.cuda else "CPU"
    name = f"Horovod {_release(installed.version)} for torch {toolchain.torch}"
    return ", ".join([name, kind, *installed.transports])


def _release(version: str) -> str:
    """Return the version without the local part, which marks the patched builds."""
    return version.partition("+")[0]


def _describe_if_working() -> str:
    """Return a sentence if the installed Horovod works; empty if there is something to do."""
    installed = presence(refresh=True)
    if installed.why:
        return ""
    transports = ", ".join(installed.transports)
    return f"Horovod {_release(installed.version)} ({transports}) is installed and works"


def _try_lock(file: TextIO) -> bool:
    """Lock the file; the system releases it when the process ends, however that happens."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
