"""The thread that reads the runs folder for the table of runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import NamedTuple

from textual.worker import get_current_worker

from distrain.tui.data.run_scanner import FolderChanges, RunScanner
from distrain.tui.screens.app_screen import AppScreen

POLL_S = 1.0  # between two looks at the folder
FIRST_ROWS_S = 0.2  # the longest time that the first paint waits for rows
PAUSE_S = 0.02  # between batches of rows: leaves the table time to paint


class Reading(NamedTuple):
    """What was read at once. `is_complete`: by now every run has been read."""

    changes: FolderChanges
    is_complete: bool


class FolderReader:
    """Reads the folder from its start on, and calls `on_read` in its thread when there is more.

    While another screen is shown, only states are read. `oldest_first` returns whether the table
    shows the oldest runs first.
    """

    def __init__(
        self, screen: AppScreen, oldest_first: Callable[[], bool], on_read: Callable[[], object]
    ) -> None:
        self._screen = screen
        self._oldest_first = oldest_first
        self._on_read = on_read
        self._unread: SimpleQueue[Reading] = SimpleQueue()
        self._wake = threading.Event()
        self._must_reread = threading.Event()
        self._is_painted = threading.Event()
        self._has_stopped = threading.Event()
        screen.run_worker(self._follow, thread=True)

    def take_first(self) -> Iterator[Reading]:
        """Yield what is read within FIRST_ROWS_S, so that the first paint has rows."""
        with suppress(Empty):
            yield self._unread.get(timeout=FIRST_ROWS_S)

    def take(self) -> Iterator[Reading]:
        """Yield what was read since the last call."""
        while not self._unread.empty():
            yield self._unread.get()

    @property
    def is_painted(self) -> bool:
        """Whether the first rows are on the screen; until then reading more would delay them."""
        return self._is_painted.is_set()

    def note_paint(self) -> None:
        """Note that the first rows are on the screen."""
        self._is_painted.set()

    def reread(self) -> None:
        """Read every run again, after an action of this app on them."""
        self._must_reread.set()
        self._wake.set()

    def stop(self) -> None:
        """End the thread."""
        self._has_stopped.set()
        self._is_painted.set()
        self._wake.set()

    def _follow(self) -> None:
        worker = get_current_worker()
        scanner = RunScanner(self._screen.distrain.runs_dir)
        is_complete = False
        while not (worker.is_cancelled or self._has_stopped.is_set()):
            if self._screen.is_watched or not is_complete:
                if self._must_reread.is_set():
                    self._must_reread.clear()
                    scanner.reset()
                for changes in scanner.scan(oldest_first=self._oldest_first()):
                    self._pass_on(changes, is_complete)
                    self._is_painted.wait()  # what the screen does not show can wait
                    self._has_stopped.wait(PAUSE_S)
                if not is_complete:
                    is_complete = True
                    self._pass_on(FolderChanges(), is_complete)
                    # The screen that is opened next: load it while nobody waits.
                    import_module("distrain.tui.screens.run_screen")
            elif self._screen.distrain.is_responsive:
                for changes in scanner.scan_states():
                    self._pass_on(changes, is_complete)
            has_more = scanner.has_more and self._screen.is_watched
            self._wake.wait(PAUSE_S if has_more else POLL_S)
            self._wake.clear()
        scanner.close()

    def _pass_on(self, changes: FolderChanges, is_complete: bool) -> None:
        self._unread.put(Reading(changes, is_complete))
        self._on_read()
