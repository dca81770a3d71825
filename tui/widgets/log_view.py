"""The lines of a log, scrollable; only lines near the visible ones are kept."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from distrain.tui.data.log_reader import LogPage

KEPT = 4_000  # lines, so that a selection made while scrolling is still there


class LogView(ScrollView, can_focus=False):
    """Shows pages. While `following` it stays at the end of the log; scrolling up stops that."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log--match", "log--found", "log--more"}
    DEFAULT_CSS = """
    LogView {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;

        & > .log--match { background: $warning-muted; }
        & > .log--found { text-style: bold reverse; }
        & > .log--more { text-style: dim; }
        &:ansi > .log--match { text-style: underline; }
    }
    """

    words: reactive[str] = reactive("")
    found: reactive[int | None] = reactive[int | None](None)
    first_column: reactive[int] = reactive(0)
    notice: reactive[str] = reactive("")

    class Moved(Message):
        """Other lines are visible than before."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[int, Text] = {}
        self._placing = False
        self.total = 0
        self.following = True

    # --- visible lines --------------------------------------------------------------------------

    @property
    def height(self) -> int:
        return self.scrollable_content_region.height

    @property
    def width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def top(self) -> int:
        """Return the number of the first visible line."""
        return self.scroll_offset.y

    @property
    def lacks_lines(self) -> bool:
        """Return whether a line that should be visible was not read yet."""
        end = min(self.top + self.height, self.total)
        return any(number not in self._lines for number in range(self.top, end))

    @property
    def kept_lines(self) -> int:
        """Return the number of lines in memory."""
        return len(self._lines)

    def visible_lines(self) -> list[Text]:
        """Return the visible lines that were read."""
        numbers = range(self.top, self.top + self.height)
        return [self._lines[number] for number in numbers if number in self._lines]

    # --- pages --------------------------------------------------------------------------------

    def put(self, page: LogPage) -> None:
        """Add the lines of a page; stay at the end of the log if `following`."""
        before = self.visible_lines()
        if page.replaced:
            self.clear()
        if page.shift:
            self._lines.clear()
            self.found = None if self.found is None else self.found + page.shift
        # The last line may have been incomplete.
        self._lines.pop(self.total - 1, None)
        self._lines.update(enumerate(page.lines, page.first))
        self.total = page.total
        self._place(self.top + page.shift)
        self._drop_far_lines()
        if self.visible_lines() != before:
            self.refresh()

    def clear(self) -> None:
        """Remove all lines and follow the end of the next pages."""
        self._lines.clear()
        self.total = 0
        self.found = None
        self.following = True
        self.first_column = 0
        self._place(0)
        self.refresh()

    def follow(self) -> None:
        self.following = True
        self._place(self.top)
        self.post_message(self.Moved())

    def reveal(self, line: int) -> None:
        """Show the line that a search has found, in the middle if it was not visible, and stop
        following.
        """
        self.found = line
        self.following = False
        if not self.top <= line < self.top + self.height:
            self._place(line - self.height // 2)
        self.post_message(self.Moved())

    def _place(self, top: int) -> None:
        self._placing = True
        self.virtual_size = Size(self.width, self.total)
        y = self.max_scroll_y if self.following else max(0, min(top, self.max_scroll_y))
        self.scroll_to(y=y, animate=False, force=True)
        self._placing = False

    def _drop_far_lines(self) -> None:
        if len(self._lines) > KEPT:
            near = range(self.top - KEPT // 2, self.top + KEPT // 2)
            self._lines = {number: self._lines[number] for number in near if number in self._lines}

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._placing and round(old_value) != round(new_value):
            self.following = self.top >= self.max_scroll_y
            self.post_message(self.Moved())

    def on_resize(self) -> None:
        self._place(self.top)
        self.post_message(self.Moved())

    def scroll_sideways(self, cells: int) -> None:
        """Scroll to the right, or to the left if `cells` is negative."""
        longest = max((text.cell_len for text in self.visible_lines()), default=0)
        self.first_column = max(0, min(self.first_column + cells, longest - self.width))

    # --- drawing --------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        number = self.top + y
        width = self.width
        line = self._lines.get(number)
        if line is None and self.notice and y == (self.height - 1) // 2:
            line = self._dimmed(self.notice.center(width))
        if line is None:
            return Strip.blank(width, self.rich_style)
        strip = Strip(self._highlighted(line, number).render(self.app.console))
        end = self.first_column + width
        if strip.cell_length > end:
            more = Strip(self._dimmed("›").render(self.app.console))
            strip = Strip.join([strip.crop_extend(self.first_column, end - 1, None), more])
        else:
            strip = strip.crop_extend(self.first_column, end, None)
        return strip.apply_style(self.rich_style).apply_offsets(self.first_column, number)

    def _dimmed(self, text: str) -> Text:
        line = Text(text, no_wrap=True, end="")
        line.stylize(self.get_component_rich_style("log--more", partial=True))
        return line

    def _highlighted(self, line: Text, number: int) -> Text:
        selected = self.text_selection.get_span(number) if self.text_selection else None
        if not self.words and selected is None:
            return line
        line = line.copy()
        if self.words:
            line.highlight_words([self.words], self._match_style(number), case_sensitive=False)
        if selected is not None:
            start, end = selected
            style = self.screen.get_component_rich_style("screen--selection")
            line.stylize(style, start, len(line) if end == -1 else end)
        return line

    def _match_style(self, number: int) -> Style:
        name = "log--found" if number == self.found else "log--match"
        return self.get_component_rich_style(name, partial=True)

    # --- selection ------------------------------------------------------------------------------

    def selected_lines(self) -> list[str]:
        """Return the lines selected with the mouse, or the visible ones."""
        selected = self.get_selection(self.text_selection) if self.text_selection else None
        if selected is not None:
            return selected[0].split("\n")
        return [line.plain for line in self.visible_lines()]

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        parts = []
        for number in sorted(self._lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = span
                parts.append(self._lines[number].plain[start : None if end == -1 else end])
        return ("\n".join(parts), "\n") if parts else None

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
