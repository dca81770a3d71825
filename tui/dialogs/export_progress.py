"""How far an export is."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.widgets import Label, Static

from distrain.tui.dialogs.dialog import Dialog
from distrain.tui.keymap import insert_keys

UPDATE_S = 0.25
HIDES = "esc hides this; the export goes on, and {run.export} on a run shows it again"
QUITS = "the app quits when it is complete; esc returns to the app"


class ExportDialog(Dialog[None]):
    """Show what `describe` returns until that is empty, because the export has ended.

    The export goes on when the dialog is closed.
    """

    def __init__(self, name: str, describe: Callable[[], str], hint: str = HIDES) -> None:
        super().__init__(f"Export of {name}")
        self._describe = describe
        self._hint = hint
        self._text = Static(describe(), markup=False)

    def compose_body(self) -> ComposeResult:
        yield self._text
        yield Label(insert_keys(self._hint, self.app), classes="quiet", markup=False)

    def on_mount(self) -> None:
        self.set_interval(UPDATE_S, self._update)

    def _update(self) -> None:
        text = self._describe()
        self._text.update(text)
        if not text and self.is_current:
            self.dismiss(None)
