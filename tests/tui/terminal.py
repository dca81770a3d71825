"""The app as a process in a real terminal (tmux)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PATIENCE_S = 90.0
KEY_S = 0.1


class Terminal:
    """tmux servers of our own, each with one window that runs the app in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened = 0
        config, runs = folder / "config", folder / "runs"
        # Those that run tests side by side set a size, which the app would take for its own.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.environment = {
            **inherited,
            "DISTRAIN_CONFIG_DIR": str(config),
            "DISTRAIN_RUNS_DIR": str(runs),
            "DISTRAIN_CLAIMS_DIR": str(folder / "claims"),
            "OMP_NUM_THREADS": "1",
            "TERM": "xterm-256color",
        }

    def open(
        self,
        *arguments: str,
        size: tuple[int, int] = (120, 36),
        shell: bool = False,
        nohup: bool = False,
    ) -> None:
        """Start the app; with `shell` in one, which stays and tells how it left; with `nohup` from
        one that hears of no hangup.
        """
        self._opened += 1  # a server that was told to end may still be there for a moment
        program = [sys.executable, "-m", "tui", *arguments]
        if shell:
            program = ["sh", "-c", f"{shlex.join(program)}; echo it left with $?; sleep 60"]
        if nohup:
            program = ["sh", "-c", f"trap '' HUP; exec {shlex.join(program)}"]
        width, height = map(str, size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, *program)
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def press(self, *keys: str) -> None:
        """Type at the speed of a person: Textual handles letters before what keys are bound to."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(KEY_S)

    def write(self, text: str) -> None:
        """Type into a line of text, at once."""
        self._tmux("send-keys", "-l", text)
        time.sleep(KEY_S)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def text(self, *options: str) -> str:
        return self._tmux("capture-pane", "-p", *options)

    def is_set(self, flag: str) -> bool:
        """A flag of tmux: "mouse_any_flag" for an app that asked for the mouse."""
        return self._tmux("display-message", "-p", f"#{{{flag}}}").strip() == "1"

    def is_grey(self) -> bool:
        """Whether the screen has no colour of the 256 but greys."""
        used = {int(number) for number in re.findall(r"[34]8;5;(\d+)", self.text("-e"))}
        return used <= {16, *range(231, 256)}

    def clipboard(self) -> str:
        """What the app has copied through OSC 52."""
        return self._tmux("show-buffer")

    def until(self, *parts: str) -> str:
        """Wait until all of this is on the screen; gives the screen."""
        return self.until_it(lambda text: all(part in text for part in parts), f"shows {parts}")

    def until_gone(self, part: str) -> None:
        self.until_it(lambda text: part not in text, f"is without {part}")

    def until_it(self, holds: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not holds(text := self.text()):
            assert time.monotonic() < deadline, f"it never {what}:\n{text}"
            time.sleep(0.2)
        return text

    def app(self) -> psutil.Process:
        return psutil.Process(int(self._tmux("list-panes", "-F", "#{pane_pid}")))

    def distrain(self, *words: str, code: int = 0) -> str:
        """What the command line prints in the same folder."""
        command = [sys.executable, "-m", "runners", *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        socket = str(self.folder / f"tmux-{self._opened}")
        command = ["tmux", "-S", socket, *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        return done.stdout


@contextmanager
def terminal_in(folder: Path) -> Iterator[Terminal]:
    """Leaves neither a terminal nor a training behind."""
    found = Terminal(folder)
    yield found
    found.close()
    for record in (folder / "runs").glob("*/run.json"):
        pid = json.loads(record.read_text())["supervisor_pid"]
        if pid and psutil.pid_exists(pid):
            os.kill(pid, signal.SIGTERM)
