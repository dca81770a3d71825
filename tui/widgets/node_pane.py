"""A pane of lines under the heads of nodes, which fold; what it shows of one host does not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, overload

from rich.text import Text
from textual.message import Message

from tui import keymap
from tui.data.nodes import Node
from tui.widgets.text_pane import TextPane

FOLDED, UNFOLDED, CURSOR = "▸", "▾", "reverse"


class Part(NamedTuple):
    """A node's head and what lies under it, each made once it is in sight."""

    node: Node
    head: Callable[[], Text]
    under: Sequence[Callable[[], Text]]


class InSight(Sequence[Text]):
    """Lines that are made when they are asked for."""

    def __init__(self, makers: Sequence[Callable[[], Text]]) -> None:
        self._makers = makers
        self._made: dict[int, Text] = {}

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, at: int) -> Text: ...
    @overload
    def __getitem__(self, at: slice) -> list[Text]: ...
    def __getitem__(self, at: int | slice) -> Text | list[Text]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        if at not in self._made:
            self._made[at] = self._makers[at]()
        return self._made[at]


class NodePane(TextPane):
    """Panes of one screen fold alike: one says what was unfolded, the screen tells the others."""

    BINDINGS = [  # noqa: RUF012
        keymap.hidden("up", "move(-1)"),
        keymap.hidden("down", "move(1)"),
    ]
    _unfolded: Collection[int] | None = None  # None: all as long as they fit, else none
    _at = 0  # the number of the node under the cursor

    class Unfolded(Message):
        """A person wants to see what lies under these nodes."""

        def __init__(self, numbers: Collection[int]) -> None:
            super().__init__()
            self.numbers = numbers

    def __init__(self, title: str = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(title, id=id, classes=classes)
        self._parts: Sequence[Part] = ()
        self._heads: dict[int, int] = {}  # the line of each node's head
        self._fixed: Sequence[Text] = ()

    def unfold(self, numbers: Collection[int]) -> None:
        """Show what lies under these nodes and no others."""
        self._unfolded = numbers
        self._paint()

    def put_parts(self, head: Sequence[Text], parts: Sequence[Part]) -> None:
        """Show lines that stay in sight, and the nodes."""
        self._parts, self._fixed, self.fixed = parts, head, len(head)
        if parts and self._at not in {part.node.number for part in parts}:
            self._at = parts[0].node.number
        shown, self._heads = self._shown, {}
        makers: list[Callable[[], Text]] = [line.copy for line in head]
        for part in parts:
            number = part.node.number
            self._heads[number] = len(makers)
            makers.append(partial(self._head, part, number in shown))
            if number in shown:
                makers += part.under
        self.put(InSight(makers))

    def put_alone(self, lines: Sequence[Text], fixed: int = 0) -> None:
        """Show lines of one host."""
        self._parts, self._heads, self.fixed = (), {}, fixed
        self.put(lines)

    @property
    def _shown(self) -> Collection[int]:
        """The nodes whose lines are to be seen."""
        if self._unfolded is not None:
            return self._unfolded
        lines = len(self._fixed) + sum(1 + len(part.under) for part in self._parts)
        return {part.node.number for part in self._parts} if lines <= self.height else ()

    def _head(self, part: Part, unfolded: bool) -> Text:
        line = Text.assemble(UNFOLDED if unfolded else FOLDED, " ", part.head())
        line.truncate(self.width, overflow="ellipsis")
        if part.node.number == self._at and self.has_focus:
            line.stylize(CURSOR, 0, line.cell_len)
        return line

    def on_focus(self) -> None:
        self._paint()

    def on_blur(self) -> None:
        self._paint()

    # --- keys -----------------------------------------------------------------------------------

    @property
    def folds(self) -> bool:
        """Whether there are several nodes."""
        return bool(self._parts)

    def action_move(self, direction: int) -> None:
        if not self._parts:
            self.scroll_relative(y=direction, animate=False)
            return
        numbers = [part.node.number for part in self._parts]
        at = min(max(numbers.index(self._at) + direction, 0), len(numbers) - 1)
        self._at = numbers[at]
        self._paint()
        self._in_sight()

    def _in_sight(self) -> None:
        """The cursor, with as much as can be of what lies under it."""
        row = self._heads[self._at] - self.fixed
        room = max(self.height - self.fixed, 1)
        after = [head - self.fixed for head in self._heads.values() if head - self.fixed > row]
        end = min(min(after, default=len(self._lines) - self.fixed), row + room)
        top = min(max(round(self.scroll_y), end - room), row)
        self.scroll_to(y=top, animate=False, immediate=True)

    def fold_one(self) -> None:
        """Unfold the node under the cursor, or fold it again."""
        self.post_message(self.Unfolded({*self._shown} ^ {self._at}))

    def fold_all(self) -> None:
        """Unfold all nodes, or fold them again."""
        numbers = {part.node.number for part in self._parts}
        self.post_message(self.Unfolded(set() if {*self._shown} >= numbers else numbers))
