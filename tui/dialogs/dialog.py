"""The base of all dialogs."""

from __future__ import annotations

from typing import TypeVar

from textual.binding import Binding
from textual.screen import ModalScreen

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A modal window that Escape closes without an answer (None)."""

    BINDINGS = [Binding("escape", "dismiss_without", "Back", show=False)]  # noqa: RUF012

    def action_dismiss_without(self) -> None:
        self.dismiss(None)
