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

TIMEOUT_S = 90.0
KEY_S = 0.1


class Terminal:
    """The app in a folder, in a window of a private tmux server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened = 0
        config, runs = folder / "config", folder / "runs"
        config.mkdir(exist_ok=True)
        self._settings = config / "settings.toml"
        if not self._settings.exists():
            self.forget()
        # pytest-xdist sets a size, which the app would use instead of the terminal's.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.environment = {
            **inherited,
            "DISTRAIN_CONFIG_DIR": str(config),
            "DISTRAIN_RUNS_DIR": str(runs),
            "DISTRAIN_CLAIMS_DIR": str(folder / "claims"),
            "OMP_NUM_THREADS": "1",
            "TERM": "xterm-256color",
        }

    def forget(self) -> None:
        """Set the settings back to those of a user who has seen the hints of the first start.

        The hints would cover what a test looks at. A test that shares the folder with others, or
        is run again, begins with this.
        """
        self._settings.write_text("tour_shown = true\n")

    def open(
        self,
        *arguments: str,
        size: tuple[int, int] = (120, 36),
        shell: bool = False,
        nohup: bool = False,
    ) -> None:
        """Start the app.

        With `shell` it runs in a shell, which then prints the app's exit code and stays. With
        `nohup` its parent ignores SIGHUP.
        """
        self._opened += 1  # the previous server may need a moment to exit
        program = [sys.executable, "-m", "distrain.tui", *arguments]
        if shell:
            program = ["sh", "-c", f"{shlex.join(program)}; echo it left with $?; sleep 60"]
        if nohup:
            program = ["sh", "-c", f"trap '' HUP; exec {shlex.join(program)}"]
        width, height = map(str, size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, *program)
        self._tmux("set-option", "-s", "set-clipboard", "on")

    def press(self, *keys: str) -> None:
        """Type at the speed of a person: Textual handles letters before bindings of other keys."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(KEY_S)

    def write(self, text: str) -> None:
        """Type a text at once."""
        self._tmux("send-keys", "-l", "--", text)
        time.sleep(KEY_S)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def text(self, *options: str) -> str:
        return self._tmux("capture-pane", "-p", *options)

    def is_set(self, flag: str) -> bool:
        """Return a flag of tmux: "mouse_any_flag" is set if the app has requested the mouse."""
        return self._tmux("display-message", "-p", f"#{{{flag}}}").strip() == "1"

    def is_grey(self) -> bool:
        """Return whether greys are the only ones of the 256 colours on the screen."""
        used = {int(number) for number in re.findall(r"[34]8;5;(\d+)", self.text("-e"))}
        return used <= {16, *range(231, 256)}

    def clipboard(self) -> str:
        """Return what the app has copied through OSC 52."""
        return self._tmux("show-buffer")

    def until(self, *parts: str) -> str:
        """Wait until the screen shows all parts; return its text."""
        return self.until_it(lambda text: all(part in text for part in parts), f"shows {parts}")

    def until_gone(self, part: str) -> None:
        self.until_it(lambda text: part not in text, f"hides {part}")

    def until_it(self, holds: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds(text := self.text()):
            assert time.monotonic() < deadline, f"it never {what}:\n{text}"
            time.sleep(0.2)
        return text

    def app(self) -> psutil.Process:
        return psutil.Process(int(self._tmux("list-panes", "-F", "#{pane_pid}")))

    def distrain(self, *words: str, code: int = 0) -> str:
        """Run a `distrain` command in the same folder and return its output."""
        command = [sys.executable, "-m", "distrain", *words]
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
    """Yield a terminal; at the end of the block it is closed, and runs in the folder are killed."""
    found = Terminal(folder)
    yield found
    found.close()
    for record in (folder / "runs").glob("*/run.json"):
        pid = json.loads(record.read_text())["supervisor_pid"]
        if pid and psutil.pid_exists(pid):
            os.kill(pid, signal.SIGTERM)
