"""Commands of an installation: run one after the other, read line by line, and stoppable."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from distrain.runners.errors import InstallError
from distrain.runners.system.bound_command import bind

GRACE_S = 3.0  # between SIGTERM and SIGKILL
# How pip, a compiler, CMake and make begin the line that names an error.
_ERROR_LINE = re.compile(r"^ERROR: |(^|\s)(fatal )?error: |^CMake Error|\*\*\* .* Stop\.")


class InstallStoppedError(InstallError):
    """The installation was stopped on request."""


class Commands:
    """Runs commands and passes each line of their output to `on_line` and to a log file."""

    def __init__(self, log: Path, on_line: Callable[[str], None]) -> None:
        self.log = log
        self._on_line = on_line
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """Kill the running command with all its descendants, and start no other.

        Any thread may call it.
        """
        self._stopped.set()
        process = self._process  # read once: the other thread may set it to None
        if process:
            _kill_session(process)

    def check(self) -> None:
        """Raise InstallStoppedError if `stop` was called."""
        if self._stopped.is_set():
            raise InstallStoppedError("the installation was stopped")

    def wait(self, seconds: float) -> None:
        """Sleep. Raises InstallStoppedError as soon as `stop` is called."""
        self._stopped.wait(seconds)
        self.check()

    def run(
        self, what: str, command: list[str], cwd: Path, environment: Mapping[str, str]
    ) -> list[str]:
        """Run a command and return the lines that it printed.

        Raises InstallError ("`what` failed: …") or InstallStoppedError.
        """
        self.check()
        with (
            self.log.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                **bind(command),
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            ) as process,
        ):
            self._process = process
            try:
                if self._stopped.is_set():
                    _kill_session(process)
                lines = self._read_lines(process, log.write)
            except BaseException:
                _kill_session(process)
                raise
            finally:
                self._process = None
        self.check()
        if process.returncode != 0:
            problem = f"{what} failed: {find_error(lines)}; the whole output is in {self.log}"
            raise InstallError(problem)
        return lines

    def _read_lines(
        self, process: subprocess.Popen[str], write_log: Callable[[str], object]
    ) -> list[str]:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            write_log(line)
            if text := line.strip():
                lines.append(text)
                self._on_line(text)
        process.wait()
        return lines


def find_error(lines: list[str]) -> str:
    """Return the first line that names an error, or else the last line.

    A line that ends with a colon only tells where the error is; then the next one is appended.
    """
    for index, line in enumerate(lines):
        if _ERROR_LINE.search(line):
            if line.endswith(":"):
                line = " ".join(lines[index : index + 2])
            return line.removeprefix("ERROR: ")
    return lines[-1] if lines else "it printed nothing"


def _kill_session(process: subprocess.Popen[str]) -> None:
    """Kill all processes of the session that this process leads."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
