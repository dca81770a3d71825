"""Exports of runs from the app: one at a time, in a thread that no screen owns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from distrain.runners import formatting
from distrain.runners.errors import DistrainError
from distrain.runners.runs import Run
from distrain.tui.base_app import BaseApp

FORMATS = {
    "steps": "CSV: a row per window of steps",
    "logged": "CSV: what the script has logged",
    "jsonl": "JSON lines: everything, in order of time",
    "tensorboard": "TensorBoard event files",
}
SUFFIXES = {"steps": ".csv", "logged": "-logged.csv", "jsonl": ".jsonl", "tensorboard": "-tb"}


class Export(NamedTuple):
    """An export in progress; `began` is on the monotonic clock."""

    name: str
    target: Path
    began: float


class ExportController:
    """Asks what to export and where to, and reports the progress."""

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._current: Export | None = None
        self._has_failed = False  # the last one
        self._is_quitting = False

    def export(self, run: Run) -> None:
        """Ask for a format and a path, and write the file; during an export show how far it is."""
        if self._current:
            self._show_progress(self._current)
            return
        from distrain.tui.dialogs.pick_one import PickOneDialog

        folder = Path.cwd()  # before the questions: it may have been deleted
        names = [name for name in FORMATS if name != "logged" or run.record.logged()]
        options = [(name, FORMATS[name]) for name in names]
        dialog = PickOneDialog("Export the measurements as", options)
        self._app.push_screen(dialog, partial(self._ask_where, run, folder))

    def quit_when_complete(self) -> bool:
        """Show the progress of an export and quit once it is complete; return whether there is one.

        A process ends only after its threads, so that without this the terminal would be silent.
        """
        if self._current is None:
            return False
        if not self._is_quitting:
            self._is_quitting = True
            self._show_progress(self._current, self._quit_if_complete)
        return True

    def _quit_if_complete(self, _: None) -> None:
        self._is_quitting = False
        if self._current is None and not self._has_failed:
            self._app.exit()

    def _ask_where(self, run: Run, folder: Path, kind: str | None) -> None:
        if kind is None:
            return
        from distrain.tui.dialogs.prompt import PromptDialog

        noun = "folder" if kind == "tensorboard" else "file"
        dialog = PromptDialog(
            f"Export {run.record.name or run.id}",
            f"Name of the {noun}, in {folder}:",
            f"{run.id}{SUFFIXES[kind]}",
            _problem_of,
        )
        self._app.push_screen(dialog, partial(self._start, run, folder, kind))

    def _start(self, run: Run, folder: Path, kind: str, path: str | None) -> None:
        if path is None or self._current:
            return
        target = folder / os.path.expanduser(path)
        self._current = Export(run.record.name or run.id, target, time.monotonic())
        self._show_progress(self._current)
        work = partial(self._write, run, kind, self._current.target)
        self._app.run_worker(work, thread=True, group="export")

    def _show_progress(
        self, current: Export, then_quit: Callable[[None], None] | None = None
    ) -> None:
        from distrain.tui.dialogs.export_progress import HIDES, QUITS, ExportDialog

        def describe() -> str:
            return _describe(current) if self._current is current else ""

        hint = QUITS if then_quit else HIDES
        self._app.push_screen(ExportDialog(current.name, describe, hint), then_quit)

    def _write(self, run: Run, kind: str, target: Path) -> None:
        """Write the file; the body of the thread."""
        from distrain.runners.records.export import export
        from distrain.runners.records.reader import Record

        to: Any = "csv" if kind in ("steps", "logged") else kind
        table: Any = kind if to == "csv" else None
        self._has_failed = True
        try:
            with Record(run.dir) as record:  # a screen may close its own
                export(record, to, target, table)
            self._has_failed = False
            text = f"exported {formatting.size(_size(target))} to {target}"
            self._app.call_from_thread(self._app.notify, text)
        except (DistrainError, OSError) as error:
            text = f"export failed: {error}"
            self._app.call_from_thread(self._app.notify, text, severity="error")
        finally:
            self._current = None


def _problem_of(path: str) -> str:
    if not path.strip():
        return "enter a name"
    exists = os.path.lexists(os.path.expanduser(path))
    return "it already exists; choose another name" if exists else ""


def _describe(current: Export) -> str:
    seconds = formatting.duration(time.monotonic() - current.began)
    from distrain.runners.system.files import size_of_draft

    written = formatting.size(_size(current.target) or size_of_draft(current.target))
    return f"{written} in {seconds} so far, to {current.target}"


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    size = 0
    for file in path.iterdir() if os.path.isdir(path) else [path]:
        with suppress(OSError):  # it is renamed at its end, or its name is too long
            size += file.stat().st_size
    return size
