"""A pane with a section per node, each of which can be folded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, overload

from rich.text import Text
from textual.message import Message

from distrain.tui import keymap
from distrain.tui.data.node_status import NodeStatus
from distrain.tui.widgets.text_pane import TextPane

FOLDED = "▸"
UNFOLDED = "▾"
CURSOR = "reverse"


class NodeSection(NamedTuple):
    """A node: its heading and the lines below it, each built when it becomes visible."""

    node: NodeStatus
    heading: Callable[[], Text]
    lines: Sequence[Callable[[], Text]]


class LazyLines(Sequence[Text]):
    """Lines that are built when they are read first."""

    def __init__(self, builders: Sequence[Callable[[], Text]]) -> None:
        self._builders = builders
        self._built: dict[int, Text] = {}

    def __len__(self) -> int:
        return len(self._builders)

    @overload
    def __getitem__(self, at: int) -> Text: ...
    @overload
    def __getitem__(self, at: slice) -> list[Text]: ...
    def __getitem__(self, at: int | slice) -> Text | list[Text]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        if at not in self._built:
            self._built[at] = self._builders[at]()
        return self._built[at]


class NodePane(TextPane):
    """Shows sections of nodes, or the lines of a single host.

    Panes of one screen fold alike: a pane posts `Unfolded`, and the screen calls `unfold` on all.
    """

    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("up", "move(-1)"),
        keymap.make_hidden_binding("down", "move(1)"),
    ]
    _unfolded: Collection[int] | None = None  # None: all if they fit, else none
    _at = 0  # the number of the node under the cursor

    class Unfolded(Message):
        """The user unfolds these nodes and no others."""

        def __init__(self, numbers: Collection[int]) -> None:
            super().__init__()
            self.numbers = numbers

    def __init__(self, title: str = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(title, id=id, classes=classes)
        self._sections: Sequence[NodeSection] = ()
        self._heading_lines: dict[int, int] = {}  # by node number
        self._header: Sequence[Text] = ()

    def unfold(self, numbers: Collection[int]) -> None:
        """Show the lines of these nodes and no others."""
        self._unfolded = numbers
        self._paint()

    def put_sections(self, header: Sequence[Text], sections: Sequence[NodeSection]) -> None:
        """Show header lines that do not scroll, and the sections."""
        self._sections = sections
        self._header = header
        self.fixed = len(header)
        if sections and self._at not in {section.node.number for section in sections}:
            self._at = sections[0].node.number
        unfolded = self._unfolded_now
        self._heading_lines = {}
        builders: list[Callable[[], Text]] = [line.copy for line in header]
        for section in sections:
            number = section.node.number
            self._heading_lines[number] = len(builders)
            builders.append(partial(self._heading, section, number in unfolded))
            if number in unfolded:
                builders += section.lines
        self.put(LazyLines(builders))

    def put_lines(self, lines: Sequence[Text], fixed: int = 0) -> None:
        """Show the lines of a single host."""
        self._sections = ()
        self._heading_lines = {}
        self.fixed = fixed
        self.put(lines)

    @property
    def _unfolded_now(self) -> Collection[int]:
        if self._unfolded is not None:
            return self._unfolded
        lines = len(self._header) + sum(1 + len(section.lines) for section in self._sections)
        return {section.node.number for section in self._sections} if lines <= self.height else ()

    def _heading(self, section: NodeSection, unfolded: bool) -> Text:
        line = Text.assemble(UNFOLDED if unfolded else FOLDED, " ", section.heading())
        line.truncate(self.width, overflow="ellipsis")
        if section.node.number == self._at and self.has_focus:
            line.stylize(CURSOR, 0, line.cell_len)
        return line

    def on_focus(self) -> None:
        self._paint()

    def on_blur(self) -> None:
        self._paint()

    # --- keys -----------------------------------------------------------------------------------

    @property
    def folds(self) -> bool:
        """Return whether there are sections to fold."""
        return bool(self._sections)

    def action_move(self, direction: int) -> None:
        if not self._sections:
            self.scroll_relative(y=direction, animate=False)
            return
        numbers = [section.node.number for section in self._sections]
        at = min(max(numbers.index(self._at) + direction, 0), len(numbers) - 1)
        self._at = numbers[at]
        self._paint()
        self._scroll_to_cursor()

    def _scroll_to_cursor(self) -> None:
        """Show the heading under the cursor and as many of its lines as fit."""
        row = self._heading_lines[self._at] - self.fixed
        room = max(self.height - self.fixed, 1)
        after = [
            line - self.fixed for line in self._heading_lines.values() if line - self.fixed > row
        ]
        end = min(min(after, default=len(self._lines) - self.fixed), row + room)
        top = min(max(round(self.scroll_y), end - room), row)
        self.scroll_to(y=top, animate=False, immediate=True)

    def fold_one(self) -> None:
        """Unfold or fold the node under the cursor."""
        self.post_message(self.Unfolded({*self._unfolded_now} ^ {self._at}))

    def fold_all(self) -> None:
        """Unfold all nodes, or fold them all if none is folded."""
        numbers = {section.node.number for section in self._sections}
        self.post_message(self.Unfolded(set() if {*self._unfolded_now} >= numbers else numbers))
