"""The preview of the run under the cursor, which a thread reads."""

from __future__ import annotations

from functools import partial

from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.worker import get_current_worker

from distrain.tui.base_app import BaseApp
from distrain.tui.data.run_glance import RunGlance, read_glance
from distrain.tui.data.run_groups import TableRow
from distrain.tui.data.run_rows import RUN, RunRow
from distrain.tui.widgets.run_preview import RunPreviewPane

LEAST_WIDTH = 120  # cells of a screen with the pane next to the table
LEAST_HEIGHT = 30  # lines of a screen with the pane below the table
PAUSE_S = 0.08  # the cursor rests so long on a run before it is read
MOST_KEPT = 64


class GlanceRead(Message):
    """What was read of a run, for the screen to pass to `SelectedRun.accept`."""

    def __init__(self, row: RunRow, glance: RunGlance) -> None:
        super().__init__()
        self.row = row
        self.glance = glance


class SelectedRun:
    """Fills a preview pane with the line under the cursor.

    What the table knows is shown at once. The rest is read in a thread; what was read of a run that
    is no longer under the cursor is kept, but not shown.
    """

    def __init__(self, screen: Screen[None], area: Widget, app: BaseApp) -> None:
        self._screen = screen
        self._runs_dir = app.runs_dir
        self._pane = RunPreviewPane(app.run_marks, id="runs-preview")
        area.mount(self._pane)
        self._line: TableRow | None = None
        self._pinned: RunRow | None = None
        self._timer: Timer | None = None
        self._read: dict[str, tuple[RunRow, RunGlance]] = {}

    def resize(self, is_wanted: bool) -> None:
        """Show the pane if it is wanted and there is room next to the table, or else below it."""
        width, height = self._screen.size
        is_below = width < LEAST_WIDTH
        self._pane.display = is_wanted and (not is_below or height >= LEAST_HEIGHT)
        self._pane.in_two_columns = is_below
        self._screen.set_class(is_below, "-preview-below")

    def show(self, line: TableRow | None, pinned: RunRow | None) -> None:
        """Show a line, and read its run unless it was read as it is now."""
        self._line, self._pinned = line, pinned
        if not self._pane.display:
            return
        self._paint()
        if self._timer is not None:
            self._timer.stop()
        if isinstance(line, RunRow) and not self.is_current:
            self._timer = self._screen.set_timer(PAUSE_S, partial(self._start_reading, line))

    @property
    def is_current(self) -> bool:
        """Return whether the pane shows all that there is on the line under the cursor."""
        line = self._line
        if not self._pane.display or not isinstance(line, RunRow) or line.kind != RUN:
            return True
        return self._known(line) == line

    def _known(self, row: RunRow) -> RunRow | None:
        """Return the row as it was when the run was read last."""
        return self._read[row.id][0] if row.id in self._read else None

    def _start_reading(self, row: RunRow) -> None:
        read = partial(self._read_in_thread, row)
        self._screen.run_worker(read, thread=True, exclusive=True, group="selected run")

    def _read_in_thread(self, row: RunRow) -> None:
        glance = read_glance(self._runs_dir / row.id)
        if not get_current_worker().is_cancelled:
            self._screen.post_message(GlanceRead(row, glance))

    def accept(self, message: GlanceRead) -> None:
        """Keep what was read, and show it if the cursor is still there."""
        self._read.pop(message.row.id, None)
        self._read[message.row.id] = message.row, message.glance
        if len(self._read) > MOST_KEPT:
            del self._read[next(iter(self._read))]
        self._paint()

    def _paint(self) -> None:
        line = self._line
        known = self._read.get(line.id) if line is not None else None
        self._pane.show(line, known[1] if known else None, self._pinned)
