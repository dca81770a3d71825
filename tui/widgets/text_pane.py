"""Widgets of styled lines: a scrolling pane that repaints only changed lines, and a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from distrain.runners import formatting
from distrain.tui.data.copying import CopyValue


class TextPane(ScrollView, can_focus=True):
    """Shows lines. The first `fixed` of them stay at the top when the rest scrolls."""

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
        self.border_title = Content(title)  # not markup: it may be a command line
        self._lines: Sequence[Text] = ()

    @property
    def lines(self) -> Sequence[Text]:
        """Return all lines, those that are not visible too."""
        return self._lines

    @property
    def width(self) -> int:
        """Return the cells of a line."""
        return self.scrollable_content_region.width

    @property
    def height(self) -> int:
        """Return the number of lines that are visible at once."""
        return self.scrollable_content_region.height

    def _paint(self) -> None:
        """Lay out what was shown last for the current width."""

    def on_resize(self) -> None:
        self._paint()

    def watch_show_vertical_scrollbar(self) -> None:
        # The scrollbar takes a cell of each line, and is not always followed by a resize.
        self.call_later(self._paint)

    def watch_virtual_size(self) -> None:
        self._refresh_scrollbars()  # Textual does not if the lines fit exactly

    def put(self, lines: Sequence[Text]) -> None:
        """Replace the lines; only those that differ are repainted."""
        old = self._lines
        self._lines = lines
        self.virtual_size = Size(self.width, len(lines))
        for y in range(self.height):
            row = self._row(y)
            if _at(old, row) != _at(self._lines, row):
                self.refresh(Region(0, y, self.size.width, 1))

    def copy_values(self) -> list[CopyValue]:
        """Return the lines."""
        texts = [line.plain.strip() for line in self._lines]
        return [CopyValue("line", text) for text in texts if text]

    def render_line(self, y: int) -> Strip:
        row = self._row(y)
        if row >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        return strip_of(self._lines[row], self)

    def _row(self, y: int) -> int:
        return y if y < self.fixed else y + round(self.scroll_y)


class TextLines(Widget):
    """Shows lines that neither scroll nor take the focus."""

    _lines: Sequence[Text] = ()

    @property
    def lines(self) -> Sequence[Text]:
        """Return all lines that were put."""
        return self._lines

    def put(self, lines: Sequence[Text]) -> None:
        """Replace the lines; only those that differ are repainted."""
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        return strip_of(self._lines[y], self)


def problem_lines(name: str, problem: str) -> list[Text]:
    """Return the header of a record that can no longer be read."""
    return [
        Text.assemble(("✘ unreadable", "bold red"), "  ", (name, "bold")),
        Text(formatting.single_line(problem), "red", no_wrap=True, overflow="ellipsis"),
        Text("below: the last values that could be read", "dim"),
    ]


def wrapped(text: str, style: str, width: int, indent: int = 0, hang: int = 2) -> list[Text]:
    """Wrap a text at `width` cells; lines after the first are indented by `hang` more cells."""
    margin = " " * indent
    lines = wrap(
        formatting.single_line(text),
        max(width, indent + 16),
        initial_indent=margin,
        subsequent_indent=margin + " " * hang,
        break_on_hyphens=False,
    )
    return [Text(line, style, no_wrap=True) for line in lines]


def strip_of(line: Text, widget: Widget) -> Strip:
    """Return a line of text as a strip as wide as the widget."""
    console = widget.app.console
    # Rich ignores the style of a text without spans.
    own = Strip(line.render(console)).apply_style(console.get_style(line.style))
    return own.adjust_cell_length(widget.size.width).apply_style(widget.rich_style)


def _at(lines: Sequence[Text], row: int) -> Text | None:
    return lines[row] if row < len(lines) else None
