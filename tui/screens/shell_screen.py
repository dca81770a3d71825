"""A shell of the user's in a folder, in place of the app."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from textual.app import ComposeResult, SuspendNotSupported
from textual.widgets import Static

from distrain.tui.screens.app_screen import AppScreen


class ShellScreen(AppScreen):
    """Cover the other screens, so that they read nothing, until the shell has ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def compose(self) -> ComposeResult:
        yield Static("A shell is open; `exit` returns to distrain.", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self._open)

    async def _open(self) -> None:
        try:
            with self.app.suspend():
                problem = run_shell(self._folder)
        except SuspendNotSupported:
            problem = "this terminal cannot leave the app for a shell"
        self.app.pop_screen()
        if problem:
            self.distrain.refuse(problem)


def run_shell(folder: Path) -> str:
    """Run $SHELL in a folder until it ends; return why it could not start, or an empty string."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    print(f"\n{shell} in {folder}\n`exit` returns to distrain; runs continue.\n", flush=True)
    try:
        subprocess.run([shell], cwd=folder, check=False)
    except OSError as error:
        return f"cannot start {shell} in {folder}: {error.strerror}"
    return ""


def find_problem(folder: Path) -> str:
    """Return why no shell should be opened in a folder, or an empty string."""
    try:
        owner = folder.stat().st_uid
    except OSError as error:
        return f"cannot open {folder}: {error.strerror}"
    return "" if owner == os.getuid() else f"{folder} belongs to another user"
