"""The queue of this host's devices: its order, what each run waits for, and keys that change it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from textual import work
from textual.app import ComposeResult
from textual.message import Message

from distrain.runners.errors import DistrainError
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from distrain.runners.supervision.queue_order import QueuedRun, Step, move, read_queue
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue
from distrain.tui.keymap import QUEUE
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.cursor_pane import CursorPane
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.queue_table import QueueTable

POLL_S = 1.0  # between two reads of the queue


class QueueScreen(AppScreen):
    """Show the queue, which a thread reads repeatedly."""

    HELP = (
        "Each waiting run starts by itself when its devices are free and no run before it wants "
        "them. Runs that wait for other devices do not block each other."
    )
    KEYS = (QUEUE,)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(QUEUE),
        keymap.make_hidden_binding("escape", "leave"),
    ]

    class QueueRead(Message):
        """The queue now, or why it cannot be read."""

        def __init__(self, runs: Sequence[QueuedRun], problem: str = "") -> None:
            super().__init__()
            self.runs = runs
            self.problem = problem

    def __init__(self) -> None:
        super().__init__()
        self._problem = ""  # of the last read
        self._wake = threading.Event()
        self._has_left = threading.Event()

    def compose(self) -> ComposeResult:
        yield QueueTable()
        yield KeyBar()

    def on_mount(self) -> None:
        self._table = self.query_one(QueueTable)
        self._table.focus()
        self._follow()

    def on_unmount(self) -> None:
        self._has_left.set()
        self._wake.set()

    def on_screen_resume(self) -> None:
        self._wake.set()

    @work(thread=True, exclusive=True)
    def _follow(self) -> None:
        while not self._has_left.is_set():
            if self.is_watched:
                try:
                    self.post_message(self.QueueRead(read_queue()))
                except DistrainError as error:
                    self.post_message(self.QueueRead((), str(error)))
            self._wake.wait(POLL_S)
            self._wake.clear()

    def on_queue_screen_queue_read(self, event: QueueRead) -> None:
        if not event.problem:
            self._table.show(event.runs)
        elif event.problem != self._problem:
            self.distrain.refuse(event.problem)
        self._problem = event.problem

    # --- actions --------------------------------------------------------------------------------

    def action_step(self, step: Step) -> None:
        """Move the run under the cursor; the cursor stays on it."""
        if (run := self._table.run) is None or not self.distrain.check_may_change():
            return
        try:
            move(run.entry.run_id, step)
        except DistrainError as error:
            self.distrain.refuse(str(error))
        self._wake.set()

    def on_cursor_pane_opened(self, _: CursorPane.Opened) -> None:
        self.action_open()

    def action_open(self) -> None:
        if run := self._run():
            self.distrain.sessions.open(run)

    def action_stop(self) -> None:
        """Remove the run under the cursor from the queue, after a question."""
        if run := self._run():
            self.distrain.sessions.stop(run)

    def copy_values(self) -> list[CopyValue]:
        queued = self._table.run
        if queued is None:
            return []
        entry = queued.entry
        return [CopyValue("run id", entry.run_id), CopyValue("folder", entry.dir)]

    def _run(self) -> Run | None:
        """Return the run under the cursor; say why where there is none."""
        queued = self._table.run
        if queued is None:
            self.distrain.refuse("no run under the cursor")
            return None
        try:
            return Run(Record(Path(queued.entry.dir)))
        except DistrainError as error:
            self.distrain.refuse(str(error))
            return None
