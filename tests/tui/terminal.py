"""The app as a process in a real terminal (tmux)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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
        self.environment = {
            **os.environ,
            "DISTRAIN_CONFIG_DIR": str(config),
            "DISTRAIN_RUNS_DIR": str(runs),
            "DISTRAIN_CLAIMS_DIR": str(folder / "claims"),
            "OMP_NUM_THREADS": "1",
            "TERM": "xterm-256color",
        }

    def open(self, *arguments: str, size: tuple[int, int] = (120, 36)) -> None:
        self._opened += 1  # a server that was told to end may still be there for a moment
        program = [sys.executable, "-m", "tui.app", *arguments]
        width, height = map(str, size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, *program)

    def press(self, *keys: str) -> None:
        """Type at the speed of a person: Textual handles letters before what keys are bound to."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(KEY_S)

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, *parts: str) -> str:
        """Wait until all of this is on the screen; gives the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            text = self.text()
            if all(part in text for part in parts):
                return text
            assert time.monotonic() < deadline, f"never {parts} in:\n{text}"
            time.sleep(0.2)

    def until_gone(self, part: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while part in (text := self.text()):
            assert time.monotonic() < deadline, f"{part} stays in:\n{text}"
            time.sleep(0.2)

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
