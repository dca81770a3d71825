"""The base of all dialogs."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.screen import ModalScreen

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A modal window that Escape closes without an answer (None)."""

    BINDINGS = [Binding("escape", "dismiss_without", "Back", show=False)]  # noqa: RUF012

    def action_dismiss_without(self) -> None:
        self.dismiss(None)

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close the dialog with a result. Keys that were pressed before it was gone change nothing:
        Textual would close the screen below.
        """
        if self not in self.app.screen_stack:
            return AwaitComplete()
        return super().dismiss(result)
