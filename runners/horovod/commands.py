"""Commands that run one after the other, are heard line by line, and end with whoever wants it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from runners.errors import InstallError

GRACE_S = 3.0
# How pip, a compiler, CMake and make begin the line that tells what is wrong.
_BLAME = re.compile(r"^ERROR: |(^|\s)(fatal )?error: |^CMake Error|\*\*\* .* Stop\.")


class StoppedError(InstallError):
    """Somebody wanted no more of it."""


class Commands:
    """`heard` is told each line, which also goes to the log. `stop` may be called by any thread."""

    def __init__(self, log: Path, heard: Callable[[str], None]) -> None:
        self.log = log
        self._heard = heard
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """End what is under way with all its descendants; nothing is begun any more."""
        self._stopped.set()
        if process := self._process:  # read once: the other thread may have just done with it
            _end(process)

    def check(self) -> None:
        """Raises StoppedError once it has been stopped."""
        if self._stopped.is_set():
            raise StoppedError("it was stopped")

    def wait(self, seconds: float) -> None:
        """Raises StoppedError, also in the midst of it."""
        self._stopped.wait(seconds)
        self.check()

    def run(
        self, what: str, command: list[str], cwd: Path, environment: Mapping[str, str]
    ) -> list[str]:
        """What it printed. Raises InstallError, "`what` failed: …", or StoppedError."""
        self.check()
        with (
            self.log.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            ) as process,
        ):
            self._process = process
            try:
                if self._stopped.is_set():
                    _end(process)
                lines = self._listen(process, log.write)
            except BaseException:
                _end(process)
                raise
            finally:
                self._process = None
        self.check()
        if process.returncode != 0:
            raise InstallError(f"{what} failed: {blamed(lines)}; all of it is in {self.log}")
        return lines

    def _listen(self, process: subprocess.Popen[str], log: Callable[[str], object]) -> list[str]:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            log(line)
            if text := line.strip():
                lines.append(text)
                self._heard(text)
        process.wait()
        return lines


def blamed(lines: list[str]) -> str:
    """The first line that says what is wrong, with the next where it only says where; else the
    last of all.
    """
    for at, line in enumerate(lines):
        if _BLAME.search(line):
            whole = f"{line} {' '.join(lines[at + 1 : at + 2])}" if line[-1] == ":" else line
            return whole.removeprefix("ERROR: ")
    return lines[-1] if lines else "it said nothing"


def _end(process: subprocess.Popen[str]) -> None:
    """The whole session that it leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
