"""The hints that a person sees once, when the app starts for the first time."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from distrain.tui import keymap

NEW = "{app.new} chooses a preset or a script to launch."
LAUNCH = "enter goes to the preview of a preset, where enter launches it."
HINTS = (
    "{app.help} explains the focused pane; {app.palette} searches all actions.",
    "tab and {app.jump} go to other panes; {app.full} enlarges one.",
    "{app.back} goes back, {app.quit} quits; runs continue without the app.",
)


class Tour(Widget):
    """A panel above the line of keys. It takes no focus, so all keys work as without it."""

    DEFAULT_CSS = """
    Tour {
        height: auto; padding: 0 1; border: round $accent;
        border-title-color: $text; border-subtitle-color: $text-muted;
    }
    """

    def render(self) -> Text:
        first = LAUNCH if keymap.LAUNCH in getattr(self.screen, "KEYS", ()) else NEW
        hints = [keymap.insert_keys(hint, self.app) for hint in (first, *HINTS)]
        return Text("\n".join(f"{number}  {hint}" for number, hint in enumerate(hints, 1)))

    def on_mount(self) -> None:
        self.border_title = "Welcome"
        self.border_subtitle = keymap.insert_keys("{app.back} closes these hints", self.app)
