"""The dialog that adds to the list of presets: the command line of a script, or a preset file."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.suggester import Suggester
from textual.widget import AwaitMount
from textual.widgets import Input, Label, Static

from distrain.runners.checks import check
from distrain.runners.config.presets import Preset, list_file
from distrain.runners.errors import ConfigError
from distrain.tui.base_app import BaseApp
from distrain.tui.data import recent_scripts
from distrain.tui.dialogs.dialog import Answer, Dialog

HELP = (
    "Type a script, or any program, with its arguments:\n"
    "  train.py --lr 0.1\n"
    "  -m package.train          a module\n"
    "  --devices 0,1 train.py    one process on each of GPU 0 and 1\n"
    "  --devices cpu:4 train.py  four processes on the CPU\n"
    "Or the path of a preset file (.toml)."
)


PAUSE_S = 0.15  # after a key press, before the command line is checked


class AddEntryDialog(Dialog[Preset]):
    """Return the script or the preset file that was typed, as an entry of the list."""

    FIRST = "Input"

    def __init__(self) -> None:
        super().__init__(
            "Add a script or a preset file", [Answer("add", "Add to the list", "primary", "enter")]
        )

    def compose_body(self) -> ComposeResult:
        yield Static(HELP, markup=False)
        yield Input(placeholder="train.py --lr 0.1", suggester=PathSuggester())
        yield Label("", classes="complaint", markup=False)
        yield Label("→ completes a path", classes="quiet")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._check(event.value)

    @work(exclusive=True)
    async def _check(self, text: str) -> None:
        """Check what was typed in a thread, once the person pauses: files and devices are read."""
        await asyncio.sleep(PAUSE_S)
        problem = ""
        if text.strip():
            _, problem = await asyncio.to_thread(read_entry, text)
        self._complain(problem)

    def on_input_submitted(self) -> None:
        self.answer("add")

    def answer(self, id: str) -> None:
        entry, problem = read_entry(self.query_one(Input).value)
        self.workers.cancel_node(self)
        if entry is None:
            self._complain(problem)
        else:
            self.dismiss(entry)

    def _complain(self, problem: str) -> None:
        self.query_one(".complaint", Label).update(problem)


def ask_for_entry(app: BaseApp, on_added: Callable[[str], None]) -> AwaitMount:
    """Ask for an entry, remember it for the next time, and call `on_added` with its name.

    The dialog is open once the result has been awaited.
    """

    def remember(entry: Preset | None) -> None:
        if entry is None or entry.config is None:
            return
        try:
            if entry.origin == "file":
                notice = recent_scripts.remember_preset(entry.path)
            else:
                notice = recent_scripts.remember(entry.config)
        except OSError as error:
            app.notify(f"cannot write {recent_scripts.path()}: {error.strerror}")
        else:
            if notice:
                app.refuse(notice)
            on_added(entry.name)

    return app.push_screen(AddEntryDialog(), remember)


def read_entry(text: str) -> tuple[Preset | None, str]:
    """Return what the words after `distrain run` are, or None and what is wrong with them."""
    from distrain.runners.cli.run import script_of_words  # only this dialog needs a parser

    try:
        words = shlex.split(text)
        if len(words) == 1 and words[0].endswith(".toml"):
            preset = list_file(Path(words[0]))
            return (preset if preset.config else None), preset.problem
        config = script_of_words(words)
        check(config)
    except ConfigError as error:
        return None, "; ".join(problem for _, problem in error.problems)
    except ValueError as error:  # of shlex
        return None, f"{error}".lower()
    return recent_scripts.as_preset(config), ""


class PathSuggester(Suggester):
    """Completes the last word as a path: Python scripts first, then folders, then other files."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        word = value.rpartition(" ")[2]
        if not word or word.startswith("-"):
            return None
        completed = await asyncio.to_thread(complete_path, word)
        return value + completed[len(word) :] if completed else None


def complete_path(word: str) -> str | None:
    """Return the best path that begins with a word; None if there is none."""
    start = word.rpartition(os.sep)[2]
    prefix = word[: len(word) - len(start)]
    try:
        entries = list(Path(os.path.expanduser(prefix or ".")).iterdir())
    except OSError:
        return None
    matches = [entry for entry in entries if entry.name.startswith(start)]
    if not start:
        matches = [entry for entry in matches if not entry.name.startswith(".")]
    if not matches:
        return None
    best = min(matches, key=lambda entry: (entry.suffix != ".py", not entry.is_dir(), entry.name))
    return prefix + best.name + (os.sep if best.is_dir() else "")
