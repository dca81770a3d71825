"""Lines of a log that scroll; only those near the ones in sight are held."""

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

from tui.data.log_reader import Page

KEPT = 4_000  # lines, so that what was selected while scrolling is still there


class LogView(ScrollView, can_focus=False):
    """Shows pages. It is `following` while its last line is in sight; scrolling ends that."""

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
    aside: reactive[int] = reactive(0)
    notice: reactive[str] = reactive("")

    class Moved(Message):
        """Other lines are in sight than before."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[int, Text] = {}
        self._placing = False
        self.total = 0
        self.following = True

    # --- what is in sight -----------------------------------------------------------------------

    @property
    def height(self) -> int:
        return self.scrollable_content_region.height

    @property
    def width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def top(self) -> int:
        """The number of the first line in sight."""
        return self.scroll_offset.y

    @property
    def lacks(self) -> bool:
        """Whether a line should be in sight that is not here yet."""
        end = min(self.top + self.height, self.total)
        return any(number not in self._lines for number in range(self.top, end))

    def in_sight(self) -> list[Text]:
        """The lines that can be seen, as far as they are here."""
        numbers = range(self.top, self.top + self.height)
        return [self._lines[number] for number in numbers if number in self._lines]

    # --- what it is given -----------------------------------------------------------------------

    def put(self, page: Page) -> None:
        """Take lines in, and stay at the end if that is where it is."""
        before = self.in_sight()
        if page.anew:
            self.clear()
        if page.raised:
            self._lines.clear()
            self.found = None if self.found is None else self.found + page.raised
        # The last line may not have been at its end.
        self._lines.pop(self.total - 1, None)
        self._lines.update(enumerate(page.lines, page.first))
        self.total = page.total
        self._place(self.top + page.raised)
        self._forget()
        if self.in_sight() != before:
            self.refresh()

    def clear(self) -> None:
        """Show nothing and follow the end of what comes."""
        self._lines.clear()
        self.total, self.found, self.following, self.aside = 0, None, True, 0
        self._place(0)
        self.refresh()

    def follow(self) -> None:
        self.following = True
        self._place(self.top)
        self.post_message(self.Moved())

    def reveal(self, line: int) -> None:
        """Show the line that a search has found and stay there; in the middle if it was not in
        sight before.
        """
        self.found, self.following = line, False
        if not self.top <= line < self.top + self.height:
            self._place(line - self.height // 2)
        self.post_message(self.Moved())

    def _place(self, top: int) -> None:
        self._placing = True
        self.virtual_size = Size(self.width, self.total)
        y = self.max_scroll_y if self.following else max(0, min(top, self.max_scroll_y))
        self.scroll_to(y=y, animate=False, force=True)
        self._placing = False

    def _forget(self) -> None:
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

    def move_aside(self, cells: int) -> None:
        """Show what is further to the right or, with less than 0, to the left."""
        longest = max((text.cell_len for text in self.in_sight()), default=0)
        self.aside = max(0, min(self.aside + cells, longest - self.width))

    # --- drawing --------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        number, width = self.top + y, self.width
        line = self._lines.get(number)
        if line is None and self.notice and y == (self.height - 1) // 2:
            line = self._more(self.notice.center(width))
        if line is None:
            return Strip.blank(width, self.rich_style)
        strip = Strip(self._marked(line, number).render(self.app.console))
        beyond = strip.cell_length > self.aside + width
        strip = strip.crop_extend(self.aside, self.aside + width - beyond, None)
        if beyond:
            strip = Strip.join([strip, Strip(self._more("›").render(self.app.console))])
        return strip.apply_style(self.rich_style).apply_offsets(self.aside, number)

    def _more(self, text: str) -> Text:
        line = Text(text, no_wrap=True, end="")
        line.stylize(self.get_component_rich_style("log--more", partial=True))
        return line

    def _marked(self, line: Text, number: int) -> Text:
        selected = self.text_selection.get_span(number) if self.text_selection else None
        if not self.words and selected is None:
            return line
        line = line.copy()
        if self.words:
            line.highlight_words([self.words], self._ink(number), case_sensitive=False)
        if selected is not None:
            start, end = selected
            style = self.screen.get_component_rich_style("screen--selection")
            line.stylize(style, start, len(line) if end == -1 else end)
        return line

    def _ink(self, number: int) -> Style:
        name = "log--found" if number == self.found else "log--match"
        return self.get_component_rich_style(name, partial=True)

    # --- selection with the mouse ---------------------------------------------------------------

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
