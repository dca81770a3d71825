"""A group of runs: their table, their curves overlaid, and how they differ."""

from __future__ import annotations

from textual.widget import Widget

from distrain.runners.groups import Group
from distrain.tui import keymap
from distrain.tui.data.copying import CopyValue
from distrain.tui.data.run_comparison import ComparisonFrame
from distrain.tui.keymap import COMPARE, GROUP, PLOT
from distrain.tui.screens.compare_screen import CompareScreen
from distrain.tui.screens.linked_plots import LinkedPlotsScreen
from distrain.tui.widgets.cursor_pane import CursorPane
from distrain.tui.widgets.group_table import GroupTable
from distrain.tui.widgets.text_pane import TextPane


class GroupScreen(CompareScreen):
    """Show what a comparison shows, and a table in which a run can be opened."""

    HELP = (
        "The runs of a sweep, which train one after another where they share devices. "
        "{group.open} opens the run under the cursor. Tab goes to the plots and the settings."
    )
    KEYS = (GROUP, COMPARE, PLOT)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(GROUP, COMPARE, PLOT),
        *LinkedPlotsScreen.PANE_BINDINGS,
    ]

    def __init__(self, group: Group) -> None:
        super().__init__(group.runs)
        self.group = group

    def _make_summaries(self) -> TextPane:
        return GroupTable(id="summaries")

    def _list_panes(self) -> list[Widget]:
        return [self.query_one(GroupTable), *super()._list_panes()]

    def _show_summaries(self, frame: ComparisonFrame) -> None:
        live = sum(run.row.live for run in frame.runs)
        ended = f"{len(frame.runs) - live} of {len(frame.runs)} runs have ended"
        text = "  ·  ".join(filter(None, [self.group.name, ended, self._hint()]))
        self.query_one(GroupTable).show(frame, text)

    def on_cursor_pane_opened(self, _: CursorPane.Opened) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Open the run under the cursor of the table."""
        wanted = self.query_one(GroupTable).current
        for run in self.runs:
            if run.id == wanted:
                self.distrain.sessions.open(run)

    def action_stop(self) -> None:
        self.distrain.sessions.stop(self.group)

    def copy_values(self) -> list[CopyValue]:
        current = self.query_one(GroupTable).current
        run = [CopyValue("run id", current)] if current else []
        return [*run, CopyValue("group id", self.group.id)]
