"""The table of runs: as many columns as there is room for, only the lines in sight are made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui import keymap
from tui.data.rows import Row
from tui.widgets.run_lines import column_at, columns, head, one

REPAINT_S = 20.0  # ages are words of one unit, so they need not be newer


class RunTable(ScrollView, can_focus=True, inherit_bindings=False):
    """`show` gives it rows; it says which one is pointed at, opened, or what to sort by."""

    HELP = (
        "A run has the same colour and mark here and in every plot. {runs.mark} marks several, to "
        "compare ({runs.compare}) or delete them ({runs.delete}). ↥ is pinned to the top. A click "
        "on a head sorts."
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
        keymap.hidden("up,k", "move(-1)"),
        keymap.hidden("down,j", "move(1)"),
        keymap.hidden("pageup", "page(-1)"),
        keymap.hidden("pagedown", "page(1)"),
        keymap.hidden("home", "move(-1000000)"),
        keymap.hidden("end,G", "move(1000000)"),
    ]

    class Pointed(Message):
        """The cursor is on another row, or on none."""

        def __init__(self, row: Row | None) -> None:
            super().__init__()
            self.row = row

    class Opened(Message):
        """A row was clicked twice."""

        def __init__(self, row: Row) -> None:
            super().__init__()
            self.row = row

    class Sorted(Message):
        """The head of a column was clicked."""

        def __init__(self, by: str) -> None:
            super().__init__()
            self.by = by

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[Row] = ()
        self._marked: Collection[str] = ()
        self._sorted = ("age", True)
        self._empty = ""
        self._at = 0
        self._held: str | None = None
        self._pointed: Row | None = None

    def on_mount(self) -> None:
        self.set_interval(REPAINT_S, self.refresh)

    @property
    def sortable(self) -> list[str]:
        """What the rows in sight can be sorted by, from left to right."""
        return ["status", *(column.name for column in columns(self._width))]

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._at] if self._at < len(self._rows) else None

    def show(
        self,
        rows: Sequence[Row],
        marked: Collection[str] = (),
        by: str = "age",
        descending: bool = True,
        empty: str = "",
        hold: bool = True,
    ) -> None:
        """Show these rows; the cursor stays with its run, or on top while `hold` is not given."""
        before, was_at = (*self._painted(), self._sorted, self._empty), self._at
        self._rows, self._marked, self._empty = rows, frozenset(marked), empty
        self._sorted = (by, descending)
        place = {row.id: at for at, row in enumerate(rows)}.get(self._held or "", self._at)
        self._at = max(0, min(place, len(rows) - 1)) if hold or self._held else 0
        if hold and self.row is not None:
            self._held = self.row.id
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        if self._at != was_at:  # else a person may have scrolled away from it
            self._in_sight()
        after = (*self._painted(), self._sorted, self._empty)
        if len(before) != len(after) or before[-2:] != after[-2:] or not rows:
            self.refresh()
        elif before != after:
            differing = (y for y, old in enumerate(before, 1) if old != after[y - 1])
            self.refresh(*(Region(0, y, self.size.width, 1) for y in differing))
        self._point()

    def _painted(self) -> list[tuple[Row, bool, bool] | None]:
        """What the lines under the head show."""
        top = round(self.scroll_y)
        ats = range(top, top + max(self.size.height - 1, 0))
        return [self._painted_at(at) if at < len(self._rows) else None for at in ats]

    def _painted_at(self, at: int) -> tuple[Row, bool, bool]:
        row = self._rows[at]
        return row, row.id in self._marked, at == self._at

    # --- the cursor -----------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self.point_at(self._at + by)

    def action_page(self, direction: int) -> None:
        self.point_at(self._at + direction * max(self.size.height - 2, 1))

    def point_at(self, at: int) -> None:
        """Move the cursor to a row by its place; the nearest where there is none."""
        self._at = max(0, min(at, len(self._rows) - 1))
        self._held = self.row.id if self.row else None
        self._in_sight()
        self.refresh()
        self._point()

    def _in_sight(self) -> None:
        top, room = round(self.scroll_y), max(self.size.height - 1, 1)
        last = max(len(self._rows) - room, 0)
        y = min(max(top, self._at - room + 1), self._at, last)
        if y != top:
            self.scroll_to(y=y, animate=False, immediate=True)

    def _point(self) -> None:
        if self.row != self._pointed:
            self._pointed = self.row
            self.post_message(self.Pointed(self.row))

    # --- the mouse ------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            if by := column_at(offset.x, self._width):
                self.post_message(self.Sorted(by))
            return
        at = offset.y - 1 + round(self.scroll_y)
        if at == self._at and self._held and self.row:
            self.post_message(self.Opened(self.row))
        elif at < len(self._rows):
            self.point_at(at)

    # --- lines ----------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _is_bare(self) -> bool:
        """Whether the cursor takes no colours: in reverse each ink would be a ground of its own,
        and on a light theme's cursor some are not seen.
        """
        return self.app.native_ansi_color or not self.app.current_theme.dark

    def render_line(self, y: int) -> Strip:
        style, at = self.rich_style, y - 1 + round(self.scroll_y)
        if not self._rows:
            text = self._empty if y == self.size.height // 3 else ""
            line = Text(text.center(self._width))
        elif y == 0:
            line = head(*self._sorted, self._width)
            style = self.get_component_rich_style("run-table--head")
        elif at < len(self._rows):
            row = self._rows[at]
            paper = self.background_colors[1]
            if at == self._at:
                style = self.get_component_rich_style("run-table--cursor")
                paper = Color.from_rich_color(style.bgcolor) if style.bgcolor else paper
            line = one(row, self._width, row.id in self._marked, paper)
            if at == self._at and self.has_focus and self._is_bare:
                line = Text(line.plain)
        else:
            line = Text()
        strip = Strip(line.render(self.app.console))
        return strip.adjust_cell_length(self.size.width).apply_style(style)
