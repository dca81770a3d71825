"""The field of a filter expression, which completes keys and values."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Input

from distrain.tui import keymap
from distrain.tui.data.completions import Completions

NO_COMPLETIONS = Completions()


class FilterInput(Input):
    """Replaces the word that is typed by the next of its completions. The screen sets them."""

    BINDINGS = [keymap.make_hidden_binding("tab", "complete")]  # noqa: RUF012

    completions = NO_COMPLETIONS
    _turn = 0
    _completed = ""  # the value after the last completion: another tab takes the next word

    def action_complete(self) -> None:
        if self.value == self._completed:
            self._turn += 1
        else:
            self._turn = 0
            self._cycled = self.completions
        start, words = self._cycled
        if words:
            self._completed = self.value[:start] + words[self._turn % len(words)]
            self.value = self._completed
            self.cursor_position = len(self.value)

    _cycled = NO_COMPLETIONS


def completion_line(completions: Completions, room: int) -> Text:
    """Return the words that tab completes to, as many as fit."""
    line = Text(" tab ", "bold", no_wrap=True, overflow="ellipsis")
    for word in completions.words:
        if line.cell_len + len(word) + 2 > room - 2:
            return line.append(" …", "dim")
        line.append(f" {word} ", "dim")
    return line
