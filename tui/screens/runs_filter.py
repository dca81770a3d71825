"""The filter of the table of runs: its field, its completions, and filters saved under a name."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rich.text import Text
from textual.widgets import Static

from distrain.tui.base_app import BaseApp
from distrain.tui.data.run_rows import RunRow
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.filter_input import NO_COMPLETIONS, FilterInput, completion_line

HINT = "words, lr>0.1, status:failed, tag:x, -name:y · esc clears the filter"
NONE, REMOVE = "\0none", "\0remove"  # options that no name equals


class RunsFilter:
    """Owns the field and the line above it. `on_change` is called when the filter has changed.

    The field is mounted when it is used first: styling an input line takes long for a first paint.
    """

    def __init__(self, app: BaseApp, note: Static, on_change: Callable[[], None]) -> None:
        self._app = app
        self._note = note
        self._field = FilterInput(placeholder=HINT, id="runs-filter", compact=True)
        self._on_change = on_change

    @property
    def text(self) -> str:
        return self._field.value

    @property
    def name(self) -> str:
        """Return the name of the saved filter that is active, or an empty string."""
        text = self.text.strip()
        found = (name for name, saved in self._app.settings.filters.items() if saved == text)
        return next(found, "") if text else ""

    @property
    def is_open(self) -> bool:
        return self._field.is_attached and self._field.display

    def open(self) -> None:
        self._mount()
        self._field.display = True
        self._field.screen.set_focus(self._field)  # at once: text may be on its way

    def _mount(self) -> None:
        if not self._field.is_attached:
            self._note.screen.mount(self._field, after=self._note)

    def clear(self) -> None:
        self._field.value = ""
        self._field.display = False

    def close_if_empty(self) -> None:
        self._field.display = bool(self.text)

    def set(self, text: str) -> None:
        self._mount()
        self._field.value = text
        self._field.cursor_position = len(text)
        self._field.display = bool(text)
        self._on_change()

    def explain(self, problem: str, rows: Collection[RunRow], other: str) -> None:
        """Show what is wrong with the filter, or else how the word that is typed may continue.

        `other` is shown where there is nothing to say on the filter.
        """
        is_typing = self._field.has_focus and self._field.display
        self._field.completions = NO_COMPLETIONS
        line = Text(f" {other}", no_wrap=True, overflow="ellipsis") if other else Text()
        if is_typing:
            from distrain.tui.data.row_filter import complete

            before_cursor = self.text[: self._field.cursor_position]
            if before_cursor == self.text:
                self._field.completions = complete(before_cursor, rows)
        if self._field.completions.words:
            line = completion_line(self._field.completions, self._app.size.width)
        if problem and not (is_typing and self._is_unfinished):
            line = Text(f" {problem}", no_wrap=True, overflow="ellipsis")
        self._note.display = bool(line)
        self._note.update(line)

    @property
    def _is_unfinished(self) -> bool:
        """Return whether the problem may be that a word is not typed to its end."""
        return bool(self._field.completions.words)

    # --- saved filters --------------------------------------------------------------------------

    def save(self) -> None:
        """Ask for a name, and save the filter under it."""
        from distrain.tui.dialogs.prompt import PromptDialog

        text = self.text.strip()
        if not text:
            hint = "there is no filter to save; {runs.filter} types one"
            self._app.refuse(insert_keys(hint, self._app))
            return

        def save(name: str | None) -> None:
            if name is not None:
                self._app.remember(filters={**self._app.settings.filters, name.strip(): text})
                self._on_change()

        dialog = PromptDialog("Save the filter", text, self.name, _name_problem)
        self._app.push_screen(dialog, save)

    def choose(self) -> None:
        """Ask for one of the saved filters."""
        from distrain.tui.dialogs.pick_one import PickOneDialog

        saved = self._app.settings.filters
        if not saved:
            hint = "no filter is saved yet; {runs.filter} types one and {runs.save} saves it"
            self._app.refuse(insert_keys(hint, self._app))
            return
        width = max(map(len, saved))
        options = [(NONE, "No filter"), *((n, f"{n:{width}}  {text}") for n, text in saved.items())]
        if self.name:
            options.append((REMOVE, f"Remove the saved filter {self.name}"))

        def use(name: str | None) -> None:
            if name == REMOVE:
                left = {other: text for other, text in saved.items() if other != self.name}
                self._app.remember(filters=left)
                self._on_change()
            elif name is not None:
                self.set(saved.get(name, ""))

        self._app.push_screen(PickOneDialog("Filters", options, self.name or NONE), use)


def _name_problem(name: str) -> str:
    return "" if name.strip() else "The name is missing."
