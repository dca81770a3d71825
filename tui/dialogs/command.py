"""The line for commands, at the bottom of the screen: completion above it, a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from distrain.tui.data import command_history
from distrain.tui.data.command_words import Completion, complete
from distrain.tui.dialogs.dialog import Dialog

MOST_SHOWN = 8  # completions at once
WORD = 26  # cells
HINT = "tab completes · ↑ shows earlier lines · enter executes · esc closes"


class CommandDialog(Dialog[str]):
    """Return the line that was typed.

    `first_words` are the commands; `read_arguments` returns what may follow them, and is called in
    a thread because it reads records.
    """

    def __init__(
        self,
        first_words: Sequence[Completion],
        read_arguments: Callable[[], Mapping[str, Sequence[Completion]]],
    ) -> None:
        super().__init__()
        self._first_words = first_words
        self._read_arguments = read_arguments
        self._arguments: Mapping[str, Sequence[Completion]] = {}
        self._history = [*command_history.load(), ""]
        self._at = len(self._history) - 1
        self._completions: list[Completion] = []
        self._chosen = -1  # the completion that tab inserted last

    def compose(self) -> ComposeResult:
        with Vertical(id="command"):
            yield Static(id="completions", markup=False)
            yield Input(placeholder=HINT, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        self._line = self.query_one(Input)
        self._line.border_title = ":"
        self._complete()
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        arguments = self._read_arguments()
        self.app.call_from_thread(self._use, arguments)

    def _use(self, arguments: Mapping[str, Sequence[Completion]]) -> None:
        self._arguments = arguments
        if self._chosen < 0 and self.is_attached:
            self._complete()

    def on_input_changed(self) -> None:
        self._complete()

    def _complete(self) -> None:
        self._chosen = -1
        self._before = self._line.value.rpartition(" ")[0]
        self._completions = complete(self._line.value, self._first_words, self._arguments)
        self._paint()

    def _paint(self) -> None:
        first = max(self._chosen - MOST_SHOWN + 1, 0)
        shown = self._completions[first : first + MOST_SHOWN]
        lines = []
        for index, each in enumerate(shown, first):
            style = "reverse" if index == self._chosen else ""
            word = Text(each.word, "bold", no_wrap=True)
            word.truncate(WORD, overflow="ellipsis", pad=True)
            line = Text.assemble(word, " ", (each.about, "dim"), style=style)
            line.no_wrap, line.overflow = True, "ellipsis"
            lines.append(line)
        if more := len(self._completions) - first - len(shown):
            lines.append(Text(f"{more:,} more", "dim"))
        completions = self.query_one("#completions", Static)
        completions.update(Text("\n").join(lines))
        completions.display = bool(lines)

    def on_key(self, event: events.Key) -> None:
        if event.key in ("tab", "shift+tab"):
            event.prevent_default().stop()
            self._choose(1 if event.key == "tab" else -1)
        elif event.key in ("up", "down"):
            self._recall(-1 if event.key == "up" else 1)

    def _choose(self, direction: int) -> None:
        """Replace the last word by the next completion; a single one is followed by a space."""
        if not self._completions:
            return
        self._chosen = (self._chosen + direction) % len(self._completions)
        word = self._completions[self._chosen].word
        is_only = len(self._completions) == 1 and not word.endswith("=")
        self._set(f"{self._before} {word}".lstrip() + (" " if is_only else ""))
        if is_only:
            self._complete()
        else:
            self._paint()

    def _recall(self, direction: int) -> None:
        self._at = max(0, min(self._at + direction, len(self._history) - 1))
        self._set(self._history[self._at])
        self._complete()

    def _set(self, text: str) -> None:
        with self._line.prevent(Input.Changed):
            self._line.value = text
        self._line.cursor_position = len(text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        line = event.value.strip()
        if line:
            command_history.add(line)
        self.dismiss(line or None)
