"""Keeps the app alive after an unexpected error in a message handler.

Runs do not depend on the app, but the person who watches them does.
"""

from __future__ import annotations

from textual.message import Message
from textual.message_pump import MessagePump

from distrain.runners.errors import DistrainError


class ErrorBoundary(MessagePump):
    """A mixin for the app and its screens: show the error of a handler instead of ending the app,
    as Textual would.
    """

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except DistrainError as error:  # an error of the user's, not of the app
            self.app.refuse(str(error))  # type: ignore[attr-defined]
        except Exception as error:
            from distrain.tui.dialogs.error import ErrorDialog

            # Screens below the dialog still get messages, and may fail again before it is read.
            is_shown = self.app.screen_stack and isinstance(self.app.screen, ErrorDialog)
            if not is_shown:
                self.app._handle_exception(error)
