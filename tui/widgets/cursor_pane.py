"""A pane of lines with a cursor on one of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from distrain.tui import keymap
from distrain.tui.widgets.text_pane import TextPane, strip_of


class CursorPane(TextPane):
    """Shows `fixed` lines, rows with a cursor on one of them, and more lines below."""

    fixed = 1
    COMPONENT_CLASSES = {"cursor-pane--cursor"}  # noqa: RUF012
    DEFAULT_CSS = """
    CursorPane {
        & > .cursor-pane--cursor {
            background: $block-cursor-blurred-background;
            color: $block-cursor-blurred-foreground;
        }
        &:focus > .cursor-pane--cursor {
            background: $block-cursor-background; color: $block-cursor-foreground;
        }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up,k", "move(-1)"),
        keymap.make_hidden_binding("down,j", "move(1)"),
        keymap.make_hidden_binding("home", "move(-9999)"),
        keymap.make_hidden_binding("end", "move(9999)"),
    ]

    class Opened(Message):
        """The row under the cursor was clicked."""

    def __init__(self, title: str = "", *, id: str | None = None) -> None:
        super().__init__(title, id=id)
        self._ids: Sequence[str] = ()
        self._cursor = 0

    @property
    def current(self) -> str | None:
        """Return the id of the row under the cursor."""
        return self._ids[self._cursor] if self._cursor < len(self._ids) else None

    def put_rows(self, ids: Sequence[str], lines: Sequence[Text]) -> None:
        """Show the fixed lines, one for each id, and others. The cursor stays on its id."""
        current = self.current
        self._ids = ids
        if current in ids:
            self._cursor = ids.index(current)
        self._cursor = max(0, min(self._cursor, len(ids) - 1))
        self.put(lines)
        self.refresh()

    def action_move(self, by: int) -> None:
        self._cursor = max(0, min(self._cursor + by, len(self._ids) - 1))
        row = Region(0, self.fixed + self._cursor - 1, 1, 2)
        self.scroll_to_region(row, animate=False, force=True)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        at = self._row(event.get_content_offset_capture(self).y) - self.fixed
        if 0 <= at < len(self._ids):
            was_current = at == self._cursor and self.has_focus
            self.action_move(at - self._cursor)
            if was_current or event.chain > 1:
                self.post_message(self.Opened())

    def render_line(self, y: int) -> Strip:
        row = self._row(y)
        if row != self.fixed + self._cursor or not self._ids or y < self.fixed:
            return super().render_line(y)
        # Colours are not legible on the cursor of every theme.
        strip = strip_of(Text(self.lines[row].plain, no_wrap=True), self)
        return strip.apply_style(self.get_component_rich_style("cursor-pane--cursor"))
