"""What every rank of a run is doing: where a stall holds it, and the calls of its threads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from threading import Event

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from distrain.runners.errors import DistrainError
from distrain.runners.records.stacks import is_library, read_last_stacks
from distrain.runners.records.stall import COLUMNS, Stall
from distrain.runners.runs import Run
from distrain.tui import keymap
from distrain.tui.keymap import STACKS
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.table_columns import TableColumn, align
from distrain.tui.widgets.text_pane import TextPane

REFRESH_S = 1.0
MOST_RANKS = 12  # lines of the table before it scrolls
BORDER = 2  # lines
SHOWN_CALLS = 2  # the innermost ones of libraries


class StacksScreen(AppScreen):
    """Show the stall of a run and the last stacks of its ranks, which it takes when it opens."""

    HELP = (
        "What every rank is doing. During a stall the table shows where each rank is; ranks that "
        "the others wait for come first and are marked. Below are the calls of all threads, "
        "grouped; groups of few ranks come first, and your own code is highlighted. They are kept "
        "in logs/stacks.log of the run. {stacks.again} reads them again."
    )
    KEYS = (STACKS,)
    BINDINGS = [*keymap.make_bindings(STACKS)]  # noqa: RUF012

    class StacksRead(Message):
        """The stacks as text, or why there are none."""

        def __init__(self, text: str, problem: str = "") -> None:
            super().__init__()
            self.text = text
            self.problem = problem

    class StallRead(Message):
        """The status, and the stall that lasts, if there is one."""

        def __init__(self, status: str, stall: Stall | None) -> None:
            super().__init__()
            self.status = status
            self.stall = stall

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self._text = ""
        self._has_left = Event()

    def compose(self) -> ComposeResult:
        yield Static(id="stall", markup=False)
        yield TextPane("Ranks", id="positions")
        yield TextPane("Stacks", id="stacks")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#positions", TextPane).fixed = 1
        stacks = self.query_one("#stacks")
        stacks.border_subtitle = "reading…"
        stacks.focus()
        self._follow_stall()
        self._read()

    def on_unmount(self) -> None:
        self._has_left.set()

    # --- threads that read ----------------------------------------------------------------------

    @work(thread=True, group="stall")
    def _follow_stall(self) -> None:
        with suppress(DistrainError):  # the run was deleted
            while not self._has_left.is_set():
                if self.is_watched:
                    state = self.run.record.state
                    self.post_message(self.StallRead(state.status, state.current_stall))
                self._has_left.wait(REFRESH_S)

    @work(thread=True, exclusive=True, group="stacks")
    def _read(self) -> None:
        """Take the stacks, which the supervisor keeps in the record, and show what it keeps."""
        self.post_message(self.StacksRead(read_last_stacks(self.run.dir) or "\nreading…"))
        problem = ""
        try:
            if self.run.is_live and not self.run.read_stacks():
                problem = "no rank answers"
        except DistrainError as error:
            problem = str(error)
        text = read_last_stacks(self.run.dir) or "\nno stacks were taken"
        self.post_message(self.StacksRead(text, problem))

    # --- what they have read --------------------------------------------------------------------

    def on_stacks_screen_stall_read(self, event: StallRead) -> None:
        stall, now = event.stall, time.time()
        sentence = self.query_one("#stall", Static)
        positions = self.query_one("#positions", TextPane)
        sentence.set_class(stall is not None, "-stalled")
        positions.display = bool(stall and stall.positions)
        if stall is None:
            sentence.update(f"{self.run.record.name or self.run.id} is {event.status}")
            return
        sentence.update(f"◑ stalled: {stall.describe(now)}")
        lines = _table(stall, now)
        positions.put(lines)
        positions.styles.height = min(len(lines), MOST_RANKS) + BORDER

    def on_stacks_screen_stacks_read(self, event: StacksRead) -> None:
        pane = self.query_one("#stacks", TextPane)
        if event.problem:
            self.distrain.refuse(event.problem)
        self._text = event.text
        heading, _, stacks = event.text.partition("\n")
        pane.border_subtitle = Content(heading.removeprefix("--- "))
        pane.put([*_styled_lines(stacks.splitlines())])

    # --- actions --------------------------------------------------------------------------------

    def action_again(self) -> None:
        self.query_one("#stacks").border_subtitle = "reading…"
        self._read()

    def action_copy(self) -> None:
        self.distrain.copy(self._text, "stacks")


def _table(stall: Stall, now: float) -> list[Text]:
    """Return the header and a line per rank; absent ranks are marked."""
    rows = stall.rows(now)
    widths = [max(map(len, cells)) for cells in zip(COLUMNS, *rows, strict=True)]
    columns = [
        TableColumn(name, width, right=index in (0, 1, 3))
        for index, (name, width) in enumerate(zip(COLUMNS, widths, strict=True))
    ]
    absent = set(map(str, stall.told_apart))
    lines = []
    for cells in (COLUMNS, *rows):
        style = "dim" if cells is COLUMNS else "bold yellow" if cells[0] in absent else ""
        padded = (
            align(Text(cell, style), column) for cell, column in zip(cells, columns, strict=True)
        )
        lines.append(Text("  ", no_wrap=True).join(padded))
    return lines


def _styled_lines(lines: Iterable[str]) -> Iterator[Text]:
    """Return the lines of stacks: headings are bold, calls of libraries dim.

    Of several calls of libraries in a row only the innermost ones are shown.
    """
    for are_libraries, group in groupby(lines, _is_call_of_library):
        calls = list(group)
        hidden = len(calls) - SHOWN_CALLS
        if are_libraries and hidden > 1:
            yield Text(f"  … {hidden} calls of libraries", "dim italic", no_wrap=True)
            calls = calls[hidden:]
        for line in calls:
            style = "dim" if are_libraries else "" if line.startswith(" ") else "bold"
            yield Text(line, style, no_wrap=True)


def _is_call_of_library(line: str) -> bool:
    return line.startswith(" ") and is_library(line)
