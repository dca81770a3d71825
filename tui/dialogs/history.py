"""The list of what happened to runs and benches, newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from distrain.runners import formatting
from distrain.tui.data.history import HistoryEvent
from distrain.tui.dialogs.dialog import Dialog
from distrain.tui.widgets.colours import STATUSES, UNKNOWN

NAME = 24  # cells
TODAY_S = 86_400.0  # older events are shown with their date


class HistoryDialog(Dialog[str]):
    """Return the id of the run or bench whose event was chosen. • marks events that are new."""

    LOOK = "wide history"

    def __init__(self, events: Sequence[HistoryEvent], seen_until: float) -> None:
        super().__init__("What happened")
        self._events = events
        self._seen_until = seen_until

    def compose_body(self) -> ComposeResult:
        if self._events:
            lines = [describe(event, self._seen_until) for event in self._events]
            yield OptionList(*(Option(line) for line in lines), markup=False)
            yield Label("enter opens the run · esc closes", classes="quiet")
        else:
            yield Label("No run or bench has ended yet.", classes="quiet")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._events[event.option_index].row.id)


def describe(event: HistoryEvent, seen_until: float) -> Text:
    """Return one line: when, which run, and what happened."""
    mark, colour = STATUSES.get(event.status, UNKNOWN)
    pattern = "%H:%M" if time.time() - event.time < TODAY_S else "%b %d"
    name = Text(event.row.name or event.row.short, "bold", no_wrap=True)
    name.truncate(NAME, overflow="ellipsis", pad=True)
    return Text.assemble(
        ("• " if event.time > seen_until else "  ", "cyan"),
        (f"{time.strftime(pattern, time.localtime(event.time)):>6}  ", "dim"),
        name,
        f"  {mark} ",
        (formatting.single_line(event.text), colour),
        no_wrap=True,
        overflow="ellipsis",
    )
