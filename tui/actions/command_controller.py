"""The lines that a person types after `:`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

from textual.widgets import Input

from distrain.models.errors import nearest
from distrain.runners import lookup
from distrain.runners.errors import DistrainError
from distrain.tui import keymap
from distrain.tui.actions import available
from distrain.tui.base_app import BaseApp
from distrain.tui.data import command_words, fuzzy
from distrain.tui.data.command_words import COMMANDS, Completion
from distrain.tui.dialogs.command import CommandDialog
from distrain.tui.dialogs.output import OutputDialog
from distrain.tui.keymap import Key

THEME, OPEN = "theme", "open"


class CommandController:
    """Executes actions of the keymap by name, commands of the command line, and two of its own.

    A name alone is the action of the screen; with arguments it is the command of that name, if
    there is one ("stop" and "stop mine"). What follows the name of an action is typed into the
    input line that it opens ("filter lr>0.1").
    """

    def __init__(self, app: BaseApp) -> None:
        self._app = app
        self._own: dict[str, Callable[[str], None]] = {
            THEME: self._use_theme,
            OPEN: self._open_typed,
        }

    def ask(self) -> None:
        """Open the line for a command, and execute what is typed."""

        def execute(line: str | None) -> None:
            if line:
                self._app.call_next(self.execute, line)

        dialog = CommandDialog(self._first_words(), self._read_arguments)
        self._app.push_screen(dialog, execute)

    def _first_words(self) -> list[Completion]:
        keys = list(available.list_keys(self._app.screen))
        words = [Completion(name_of(key), key.help) for key in keys]
        words += [Completion(name, command.summary) for name, command in COMMANDS.items()]
        words += [
            Completion(THEME, "change the colours"),
            Completion(OPEN, "open a run or bench by its name or id"),
        ]
        first = {word.word: word for word in reversed(words)}  # an action before a command
        return sorted(first.values()) + [Completion(key.id, key.help) for key in keys]

    def _read_arguments(self) -> dict[str, list[Completion]]:
        values = command_words.values_of_arguments(self._app.runs_dir)
        themes = self._app.available_themes.items()
        values[THEME] = [
            Completion(name, "dark" if theme.dark else "light") for name, theme in themes
        ]
        values[OPEN] = values["RUN"]
        return values

    async def execute(self, line: str) -> None:
        """Execute a line; say why where it cannot be done."""
        name, _, rest = line.strip().removeprefix(":").partition(" ")
        rest = rest.strip()
        if name in self._own:
            self._own[name](rest)
        elif name in COMMANDS and (rest or not self._find_key(name)):
            self._execute_command(name, rest)
        elif key := self._find_key(name):
            if rest and key.id not in keymap.TAKE_TEXT:  # "launch gpt" must not launch another
                self._app.refuse(f"{name} takes no text")
                return
            await available.perform(self._app, key.id)
            if rest:
                self._app.call_after_refresh(self._type, name, rest)
        else:
            words = [*(each.word for each in self._first_words())]
            self._app.refuse(f"there is no command {name!r} here{nearest(name, words)}")

    def _find_key(self, name: str) -> Key | None:
        """Return the action with this name, id or key."""
        keys = list(available.list_keys(self._app.screen))
        for key in keys:
            if name in (name_of(key), key.id):
                return key
        return next((key for key in keys if name in self._app.key(key.id).split()), None)

    def _type(self, name: str, text: str) -> None:
        """Type a text into the input line that an action has opened."""
        line = self._app.focused
        if isinstance(line, Input):
            line.value = text
            self._app.call_after_refresh(line.action_submit)
        else:
            self._app.refuse(f"{name} takes no text")

    def _execute_command(self, name: str, rest: str) -> None:
        try:
            words = [name, *shlex.split(rest)]
        except ValueError as error:
            self._app.refuse(f"{name}: {error}".lower())
            return
        if command_words.is_reading(words) or self._app.check_may_change():
            starts = command_words.starts_something(name)
            dialog = OutputDialog(command_words.for_app(words), self._app.runs_dir, starts)
            self._app.push_screen(dialog, self._open if starts else None)

    def _open_typed(self, typed: str) -> None:
        """Open what is typed: a name as it is, or in quotes as the completion writes it."""
        try:
            words = shlex.split(typed)
        except ValueError:
            words = []
        self._open(words[0] if len(words) == 1 else typed)

    def _open(self, name: str | None) -> None:
        if not name:
            return
        try:
            self._app.sessions.open(lookup.find_any(name, self._app.runs_dir))
        except DistrainError as error:
            self._app.refuse(str(error))

    def _use_theme(self, wanted: str) -> None:
        themes = self._app.available_themes
        names = list(themes)
        kind = partial(lambda name: "dark" if themes[name].dark else "light")
        exact = [name for name in (wanted, f"textual-{wanted}") if name in themes]
        found = exact or fuzzy.search(names, wanted, str, kind)
        if wanted and found:
            self._app.theme = found[0]
        else:
            self._app.refuse(f"there is no theme {wanted!r}{nearest(wanted, themes)}")


def name_of(key: Key) -> str:
    """Return an action's label as one word."""
    return key.label.lower().replace(" ", "-")
