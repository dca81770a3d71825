"""A program in a pseudo-terminal, without an emulator, that is read as fast as it writes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.report import ROOT, settled_environment

COLUMNS, LINES = 120, 36
PATIENCE_S = 60.0
# The queries of Textual at its start, and the answer of a terminal that supports the first.
ANSWERS = {b"\x1b[?2026$p": b"\x1b[?2026;2$y", b"\x1b[?2048$p": b"\x1b[?2048;0$y"}
ESCAPES = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class Terminal:
    """A process in its own pseudo-terminal; the caller must keep reading from it."""

    def __init__(self, command: Sequence[str], settings: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "DISTRAIN_", "TEXTUAL")
        environment = {k: v for k, v in settled_environment().items() if not k.startswith(unwanted)}
        environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment |= {"DISTRAIN_CONFIG_DIR": str(settings), "PYTHONPATH": str(ROOT)}
        settings.mkdir(parents=True, exist_ok=True)
        if not (file := settings / "settings.toml").exists():
            file.write_text("tour_shown = true\n")  # not the hints of the first start
        self.output = bytearray()
        self._asked = dict(ANSWERS)
        self._file = ours
        self.began = self.last = time.perf_counter()
        self.process = psutil.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            # As its controlling terminal, so that the process gets SIGHUP if this one ends.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except psutil.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        os.close(self._file)

    def press(self, key: bytes) -> float:
        """Press a key and return when, as of `time.perf_counter`."""
        at = time.perf_counter()
        os.write(self._file, key)
        return at

    def until(self, sign: bytes | re.Pattern[bytes], since: int = 0) -> float:
        """Wait until `sign` appears in the output after position `since`; return when."""
        wanted = sign if isinstance(sign, re.Pattern) else re.compile(re.escape(sign))
        due = time.perf_counter() + PATIENCE_S
        while not wanted.search(self.output, since):
            if time.perf_counter() > due:
                raise SystemExit(f"{wanted.pattern!r} never came; the end of the screen:\n{self}")
            self.read(0.1)
        return self.last

    def drain(self, seconds: float) -> None:
        """Read for some seconds."""
        due = time.perf_counter() + seconds
        while (left := due - time.perf_counter()) > 0:
            self.read(left)

    def read(self, patience: float) -> bool:
        """Return whether there was output within `patience` seconds; `last` is the time of it."""
        if not select.select([self._file], [], [], patience)[0]:
            return False
        try:
            chunk = os.read(self._file, 1 << 16)
        except OSError:  # EIO: the process has ended
            raise SystemExit(f"{self.process.args} has ended:\n{self}") from None
        self.last = time.perf_counter()
        self.output += chunk
        for question in [question for question in self._asked if question in self.output]:
            os.write(self._file, self._asked.pop(question))
        return True

    def ended(self) -> None:
        """Read until the process has ended."""
        due = time.perf_counter() + PATIENCE_S
        while self.process.poll() is None and time.perf_counter() < due:
            try:
                self.read(0.1)
            except SystemExit:
                self.process.wait(5)

    def cpu(self) -> float:
        """Return the CPU seconds so far, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> dict[str, float]:
        """Return memory in MB: the peak resident size, the current one, and the PSS."""
        full = self.process.memory_full_info()
        held = {"rss": full.rss, "pss": getattr(full, "pss", full.uss), "peak": full.rss}
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            held["peak"] = 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
        return {name: size / 2**20 for name, size in held.items()}

    def __str__(self) -> str:
        """Return the end of the output as plain text."""
        return ESCAPES.sub(b" ", bytes(self.output[-8000:])).decode(errors="replace")[-2000:]
