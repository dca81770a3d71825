"""The table of runs. Only visible rows are built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from distrain.tui import keymap
from distrain.tui.data.run_groups import GroupRow, TableRow
from distrain.tui.data.run_rows import RunRow
from distrain.tui.marks import RunMarks
from distrain.tui.widgets.group_line import group_line
from distrain.tui.widgets.run_columns import DEFAULT_LAYOUT, TableLayout

REPAINT_S = 20.0  # ages have one unit, so they change slowly


class TableLook(NamedTuple):
    """How rows are shown: the columns, the one that sorts, the one that groups (or "")."""

    layout: TableLayout = DEFAULT_LAYOUT
    by: str = "age"
    descending: bool = True
    group_by: str = ""


class RunTable(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows rows, and posts which row is under the cursor, opened, or which column sorts."""

    HELP = (
        "A run keeps its mark in plots, and its colour where no other run there has it. "
        "{runs.mark} marks runs to compare ({runs.compare}) or delete ({runs.delete}). ↥ marks "
        "pinned runs. Of the config keys in which the runs differ, as many are columns as fit; "
        "{runs.columns} chooses others. samples/s: “now” are the last seconds of a live run, "
        "“mean” is an ended one. Click a column header to sort."
    )
    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"run-table--cursor", "run-table--head"}
    DEFAULT_CSS = """
    RunTable {
        scrollbar-size-vertical: 1;
        overflow-x: hidden;
        & > .run-table--cursor { background: $primary 15%; }
        &:focus > .run-table--cursor { background: $primary 40%; }
        & > .run-table--head { color: $text-muted; text-style: bold; }
        &:ansi:focus > .run-table--cursor { background: ansi_default; text-style: reverse; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up,k", "move(-1)"),
        keymap.make_hidden_binding("down,j", "move(1)"),
        keymap.make_hidden_binding("pageup", "page(-1)"),
        keymap.make_hidden_binding("pagedown", "page(1)"),
        keymap.make_hidden_binding("home", "move(-1000000)"),
        keymap.make_hidden_binding("end,G", "move(1000000)"),
    ]

    class Pointed(Message):
        """The cursor moved to another row, or to none."""

        def __init__(self, row: TableRow | None) -> None:
            super().__init__()
            self.row = row

    class Opened(Message):
        """A row was clicked twice."""

        def __init__(self, row: TableRow) -> None:
            super().__init__()
            self.row = row

    class Sorted(Message):
        """The header of a column was clicked."""

        def __init__(self, by: str) -> None:
            super().__init__()
            self.by = by

    def __init__(self, run_marks: RunMarks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run_marks = run_marks
        self.rows: Sequence[TableRow] = ()
        self.look = TableLook()
        self._marked: Collection[str] = ()
        self._empty = ""
        self._at = 0
        self._held_id: str | None = None
        self._pointed: TableRow | None = None

    def on_mount(self) -> None:
        self.set_interval(REPAINT_S, self.refresh)

    @property
    def sortable(self) -> list[str]:
        """Return the visible columns, from left to right, by which rows can be sorted."""
        return ["status", *(column.name for column in self.look.layout.fitted(self._width))]

    @property
    def line(self) -> TableRow | None:
        """Return the run or the header of a group under the cursor."""
        return self.rows[self._at] if self._at < len(self.rows) else None

    @property
    def row(self) -> RunRow | None:
        """Return the run under the cursor."""
        return line if isinstance(line := self.line, RunRow) else None

    @property
    def group(self) -> GroupRow | None:
        """Return the group whose header is under the cursor."""
        return line if isinstance(line := self.line, GroupRow) else None

    def show(
        self,
        rows: Sequence[TableRow],
        marked: Collection[str] = (),
        look: TableLook | None = None,
        empty: str = "",
        hold: bool = True,
    ) -> None:
        """Show these rows. The cursor stays on its run if `hold`, else on the first row."""
        before = (*self._painted(), self.look, self._empty)
        was_at = self._at
        self.rows = rows
        self._marked = frozenset(marked)
        self._empty = empty
        self.look = look or self.look
        place = {row.id: at for at, row in enumerate(rows)}.get(self._held_id or "", self._at)
        self._at = max(0, min(place, len(rows) - 1)) if hold or self._held_id else 0
        if hold and self.line is not None:
            self._held_id = self.line.id
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        if self._at != was_at:  # otherwise the user may have scrolled away from it
            self._scroll_to_cursor()
        after = (*self._painted(), self.look, self._empty)
        if len(before) != len(after) or before[-2:] != after[-2:] or not rows:
            self.refresh()
        elif before != after:
            differing = (y for y, old in enumerate(before, 1) if old != after[y - 1])
            self.refresh(*(Region(0, y, self.size.width, 1) for y in differing))
        self._point()

    def mark(self, marked: Collection[str]) -> None:
        """Show which rows are marked, by their ids."""
        self._marked = frozenset(marked)
        self.refresh()

    def _painted(self) -> list[tuple[TableRow, bool, bool] | None]:
        """Return what the visible rows show."""
        top = round(self.scroll_y)
        ats = range(top, top + max(self.size.height - 1, 0))
        return [self._painted_at(at) if at < len(self.rows) else None for at in ats]

    def _painted_at(self, at: int) -> tuple[TableRow, bool, bool]:
        row = self.rows[at]
        return row, row.id in self._marked, at == self._at

    # --- the cursor -----------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self.point_at(self._at + by)

    def action_page(self, direction: int) -> None:
        self.point_at(self._at + direction * max(self.size.height - 2, 1))

    def point_at(self, at: int) -> None:
        """Move the cursor to the row with this index, or to the nearest."""
        self._at = max(0, min(at, len(self.rows) - 1))
        self._held_id = self.line.id if self.line else None
        self._scroll_to_cursor()
        self.refresh()
        self._point()

    def _scroll_to_cursor(self) -> None:
        top = round(self.scroll_y)
        room = max(self.size.height - 1, 1)
        last = max(len(self.rows) - room, 0)
        y = min(max(top, self._at - room + 1), self._at, last)
        if y != top:
            self.scroll_to(y=y, animate=False, immediate=True)

    def _point(self) -> None:
        if self.line != self._pointed:
            self._pointed = self.line
            self.post_message(self.Pointed(self.line))

    # --- the mouse ------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            if by := self.look.layout.column_at(offset.x, self._width):
                self.post_message(self.Sorted(by))
            return
        at = offset.y - 1 + round(self.scroll_y)
        if at == self._at and self._held_id and self.line:
            self.post_message(self.Opened(self.line))
        elif at < len(self.rows):
            self.point_at(at)

    # --- lines ----------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _has_plain_cursor(self) -> bool:
        """Return whether the row under the cursor is shown without colours.

        Reversed, each colour would be a background of its own, and some colours are illegible on
        the cursor of a light theme.
        """
        return self.app.native_ansi_color or not self.app.current_theme.dark

    def render_lines(self, crop: Region) -> list[Strip]:
        # Once for all lines: both are mixed from those of all parents.
        self._style, self._background = self.rich_style, self.background_colors[1]
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        style = self._style
        at = y - 1 + round(self.scroll_y)
        if not self.rows:
            text = self._empty if y == self.size.height // 3 else ""
            line = Text(text.center(self._width))
        elif y == 0:
            layout, by, descending, _ = self.look
            line = layout.header(by, descending, self._width)
            style = self.get_component_rich_style("run-table--head")
        elif at < len(self.rows):
            row = self.rows[at]
            background = self._background
            if at == self._at:
                style = self.get_component_rich_style("run-table--cursor")
                background = Color.from_rich_color(style.bgcolor) if style.bgcolor else background
            line = self._row_line(row, background)
            if at == self._at and self.has_focus and self._has_plain_cursor:
                line = Text(line.plain)
        else:
            line = Text()
        strip = Strip(line.render(self.app.console))
        return strip.adjust_cell_length(self.size.width).apply_style(style)

    def _row_line(self, row: TableRow, background: Color) -> Text:
        if isinstance(row, GroupRow):
            return group_line(row, self.look.group_by)
        mark = self._run_marks.of(row.id)
        is_marked = row.id in self._marked
        return self.look.layout.row_line(row, mark, self._width, is_marked, background)
