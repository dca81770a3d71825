"""Styled lines: a pane of them that scrolls and repaints only those that changed, and a few."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from runners import words


class TextPane(ScrollView, can_focus=True):
    """Shows lines, the first `fixed` of them even when the rest has scrolled away."""

    DEFAULT_CSS = """
    TextPane {
        border: round $foreground 30%;
        border-title-color: $text-muted;
        border-subtitle-color: $text-muted;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        overflow-x: hidden;
        &:focus { border: round $accent; border-title-color: $text; }
    }
    """

    fixed = 0

    def __init__(self, title: str = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = title
        self._lines: Sequence[Text] = ()

    @property
    def width(self) -> int:
        """Cells that a line may have."""
        return self.scrollable_content_region.width

    @property
    def height(self) -> int:
        """Lines that can be seen at once."""
        return self.scrollable_content_region.height

    def _paint(self) -> None:
        """Put the lines of what was shown last, as wide as there is room now."""

    def on_resize(self) -> None:
        self._paint()

    def watch_show_vertical_scrollbar(self) -> None:
        """It takes a cell of every line, and is not always followed by a resize."""
        self.call_later(self._paint)

    def watch_virtual_size(self) -> None:
        self._refresh_scrollbars()  # Textual does not where the lines come to fit exactly

    def put(self, lines: Sequence[Text]) -> None:
        """Show these lines instead of the ones before."""
        old, self._lines = self._lines, lines
        self.virtual_size = Size(self.width, len(lines))
        for y in range(self.height):
            row = self._row(y)
            if _at(old, row) != _at(self._lines, row):
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        row = self._row(y)
        if row >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        return strip_of(self._lines[row], self)

    def _row(self, y: int) -> int:
        return y if y < self.fixed else y + round(self.scroll_y)


class TextLines(Widget):
    """Lines that neither scroll nor take the focus."""

    _lines: Sequence[Text] = ()

    def put(self, lines: Sequence[Text]) -> None:
        """Show these lines instead of the ones before."""
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        return strip_of(self._lines[y], self)


def wrapped(text: str, style: str, width: int, indent: int = 0, hang: int = 2) -> list[Text]:
    """Lines of at most so many cells, the later ones hanging in."""
    margin = " " * indent
    lines = wrap(
        words.line(text),
        max(width, indent + 16),
        initial_indent=margin,
        subsequent_indent=margin + " " * hang,
        break_on_hyphens=False,
    )
    return [Text(line, style, no_wrap=True) for line in lines]


def strip_of(line: Text, widget: Widget) -> Strip:
    """A line of text as wide as a widget; Rich forgets the style of a text without spans."""
    console = widget.app.console
    own = Strip(line.render(console)).apply_style(console.get_style(line.style))
    return own.adjust_cell_length(widget.size.width).apply_style(widget.rich_style)


def _at(lines: Sequence[Text], row: int) -> Text | None:
    return lines[row] if row < len(lines) else None
