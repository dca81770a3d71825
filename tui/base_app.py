"""The part of the app that screens, dialogs and controllers may use."""

from __future__ import annotations

import gc
import time
from abc import abstractmethod
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from textual import events
from textual.app import App
from textual.notifications import Notify
from textual.screen import ModalScreen, Screen
from textual.signal import Signal
from textual.widgets import Input

from distrain.tui import keymap, settings
from distrain.tui.data.history import History
from distrain.tui.data.typed_text import MOST_PASTED, single_line
from distrain.tui.marks import RunMarks
from distrain.tui.settings import Settings
from distrain.tui.widgets.colours import visible_accent
from distrain.tui.widgets.reliable_timers import ReliableTimers

if TYPE_CHECKING:
    from distrain.tui.requests import BenchActions, ExportActions, LaunchActions, SessionActions

SCREENS_CSS = Path(__file__).with_name("screens.tcss")  # of all screens but the table of runs
HEARTBEAT_S = 1.0
UNRESPONSIVE_S = 3.0


class BaseApp(ReliableTimers, App[None]):
    """Settings, keys and messages. The app itself adds screens and the four controllers."""

    runs_dir: Path
    readonly: bool
    settings: Settings
    run_marks: RunMarks
    history_changed: Signal[None]  # also what of it was seen
    _last_heartbeat = inf

    def note_heartbeat(self) -> None:
        """Note that the app handles messages; called every HEARTBEAT_S."""
        self._last_heartbeat = time.monotonic()

    @property
    def is_responsive(self) -> bool:
        """Whether the app handles messages, which it does not while its terminal takes no output,
        as one whose connection is interrupted.
        """
        return time.monotonic() - self._last_heartbeat < UNRESPONSIVE_S

    @property
    @abstractmethod
    def launches(self) -> LaunchActions: ...

    @property
    @abstractmethod
    def sessions(self) -> SessionActions: ...

    @property
    @abstractmethod
    def benches(self) -> BenchActions: ...

    @property
    @abstractmethod
    def exports(self) -> ExportActions: ...

    @property
    @abstractmethod
    def history(self) -> History: ...

    @abstractmethod
    def action_end_tour(self) -> None:
        """Remove the hints of the first start, where they are still shown."""

    @abstractmethod
    def see_history(self, until: float) -> None:
        """Regard what happened until a time as seen, also the next time the app is opened."""

    def get_css_variables(self) -> dict[str, str]:
        """Return the colours of the theme, with an accent that is visible: it marks the focus."""
        variables = super().get_css_variables()
        variables["accent"] = visible_accent(variables)
        return variables

    def key(self, id: str) -> str:
        """Return the key that an action has, as it is printed on the keyboard."""
        bindings = keymap.parse_keys(id, self.settings.keys)
        return " ".join(self.get_key_display(binding) for binding in bindings)

    def notify(self, message: str, *, markup: bool = False, **options: Any) -> None:
        """Show a message, unless it is shown already. Names and errors may hold brackets, so it is
        never read as markup.
        """
        super().notify(message, markup=False, **options)

    def _on_notify(self, event: Notify) -> None:
        """Drop a message that is shown already: two threads may find the same at once."""
        if any(shown.message == event.notification.message for shown in self._notifications):
            event.prevent_default()

    async def on_event(self, event: events.Event) -> None:
        """Paste as one line into a field, or refuse what a field cannot hold."""
        if isinstance(event, events.Paste) and not event.is_forwarded:
            if len(event.text) > MOST_PASTED:
                length = f"{len(event.text):,} characters; at most {MOST_PASTED:,} can be pasted"
                self.refuse(f"the pasted text has {length}")
                return
            event.text = single_line(event.text)
        await super().on_event(event)

    async def _replace_screen(self, screen: Screen[Any]) -> Screen[Any]:
        """Remove a screen only after it was mounted, because its handlers need its widgets.

        Keys that arrive together, as over a slow connection, may open and close a dialog at once.
        No screen may wait for the app in its `on_mount`.
        """
        await screen._mounted_event.wait()
        return await super()._replace_screen(screen)

    def refuse(self, reason: str) -> None:
        """Show a warning that says why something cannot be done."""
        self.notify(reason, severity="warning", timeout=8)

    @property
    def typed_text(self) -> str | None:
        """What is typed now: the text of the field with the focus, "" in another dialog, or None.

        A screen that opened meanwhile would take the rest of the text as actions. While another
        window has the focus, it is the field that will have it again.
        """
        focused = self.focused or self._last_focused_on_app_blur
        if isinstance(focused, Input):
            return focused.value
        return "" if isinstance(self.screen, ModalScreen) else None

    def watch_attention(self) -> Callable[[], bool]:
        """Return a function that tells whether the person has gone on to something else since.

        What opens a moment after the key that asked for it would take what is typed meanwhile.
        """
        screen, typed = self.screen, self.typed_text
        return lambda: self.screen is not screen or self.typed_text not in (None, typed)

    def check_may_change(self) -> bool:
        """Return whether this app may act on runs; say why when it may not."""
        if self.readonly:
            self.refuse("read-only: start the app without --readonly to change runs")
        return not self.readonly

    def copy(self, text: str, label: str) -> None:
        """Put text on the clipboard of the user's own machine (OSC 52)."""
        self.copy_to_clipboard(text)
        self.notify(f"{label} copied")

    def remember(self, **changes: Any) -> None:
        """Change settings and save them for the next time."""
        before, self.settings = self.settings, msgspec.structs.replace(self.settings, **changes)
        if before == self.settings:
            return
        try:
            kept = settings.save(self.settings, before)
        except OSError as error:
            kept = f"cannot write {settings.path()}: {error.strerror}"
        if kept:
            self.refuse(kept)

    def read_screens_css(self) -> None:
        """Read the CSS of the other screens. Where it is missing, Textual reads it with the first
        of them, and parses all other CSS again.
        """
        if not self.stylesheet.has_source(str(SCREENS_CSS)):
            self.stylesheet.read(SCREENS_CSS)

    def start_garbage_collection(self) -> None:
        """Collect garbage from now on, among new objects only (`__main__` turns it off)."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
