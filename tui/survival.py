"""Keeps the app alive through an error of its own: runs are not its children, but the view is."""

from __future__ import annotations

from textual.message import Message
from textual.message_pump import MessagePump

from runners.errors import DistrainError


class Surviving(MessagePump):
    """An app or screen that goes on after a handler has raised; Textual would end the app."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except DistrainError as error:  # a person's business, no mistake of the app
            self.app.refuse(str(error))  # type: ignore[attr-defined]
        except Exception as error:
            from tui.screens.dialogs import ErrorDialog

            # What lies below the dialog goes on, and may fail again before it was read.
            if not (self.app.screen_stack and isinstance(self.app.screen, ErrorDialog)):
                self.app._handle_exception(error)
