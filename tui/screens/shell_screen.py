"""A shell of the user's in a folder, in place of the app."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

from textual.app import ComposeResult, SuspendNotSupported
from textual.widgets import Static

from distrain.runners import formatting
from distrain.tui.screens.app_screen import AppScreen

STDIN = 0


class ShellScreen(AppScreen):
    """Cover the other screens, so that they read nothing, until the shell has ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._has_ended = False  # the shell

    def compose(self) -> ComposeResult:
        yield Static("A shell is open; `exit` returns to distrain.", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self._open)

    async def _open(self) -> None:
        try:
            with self.app.suspend(), lend_terminal():
                problem = run_shell(self._folder)
        except SuspendNotSupported:
            problem = "this terminal cannot leave the app for a shell"
        self._has_ended = True
        if self.app.screen is self:
            self.app.pop_screen()
        if problem:
            self.distrain.refuse(problem)

    def on_screen_resume(self) -> None:
        """Leave, where another screen was opened before the shell and covered this one."""
        if self._has_ended:
            self.app.pop_screen()


def run_shell(folder: Path) -> str:
    """Run $SHELL in a folder until it ends; return why it could not start, or an empty string."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    where = formatting.printable(f"{shell} in {folder}")
    print(f"\n{where}\n`exit` returns to distrain; runs continue.\n", flush=True)
    try:
        subprocess.run([shell], cwd=folder, check=False)
    except OSError as error:
        return f"cannot start {shell} in {folder}: {error.strerror}"
    return ""


@contextlib.contextmanager
def lend_terminal() -> Iterator[None]:
    """Leave the keys that send signals to a child, and take the terminal back when it has ended.

    A shell makes itself the terminal's foreground group; one that is killed stays that, and the
    app would never read a key again. Without its terminal the app ends, as on SIGHUP, which only
    the foreground group receives.
    """
    attributes = termios.tcgetattr(STDIN)
    # The child gets the default actions: handlers, unlike SIG_IGN, are not inherited.
    keys = {each: signal.signal(each, _do_nothing) for each in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for each, handler in keys.items():
            signal.signal(each, handler)
        background = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it would stop the app here
        try:
            os.tcsetpgrp(STDIN, os.getpgrp())
            # A shell that is killed at its prompt leaves the terminal without echo.
            termios.tcsetattr(STDIN, termios.TCSADRAIN, attributes)
        except (OSError, termios.error):
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.signal(signal.SIGTTOU, background)


def _do_nothing(*_: object) -> None:
    pass


def find_problem(folder: Path) -> str:
    """Return why no shell should be opened in a folder, or an empty string."""
    try:
        owner = folder.stat().st_uid
    except OSError as error:
        return f"cannot open {folder}: {error.strerror}"
    return "" if owner == os.getuid() else f"{folder} belongs to another user"
