"""Keeps the app alive after an error in a message handler.

Runs do not depend on the app, but the person who watches them does.
"""

from __future__ import annotations

from textual.message import Message
from textual.message_pump import MessagePump

from distrain.runners.errors import DistrainError, is_current_folder_deleted

FOLDER_DELETED = (
    "the folder that the app was started in has been deleted; start the app in another one"
)


def explain(error: BaseException) -> str:
    """Return the sentence about an error that is the user's, or "" for one of the app."""
    if isinstance(error, DistrainError):
        return str(error)
    is_missing = isinstance(error, FileNotFoundError)
    return FOLDER_DELETED if is_missing and is_current_folder_deleted() else ""


class ErrorBoundary(MessagePump):
    """A mixin for the app and its screens: show the error of a handler instead of ending the app,
    as Textual would.
    """

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if reason := explain(error):
                self.app.refuse(reason)  # type: ignore[attr-defined]
                return
            from distrain.tui.dialogs.error import ErrorDialog

            # Screens below the dialog still get messages, and may fail again before it is read.
            is_shown = self.app.screen_stack and isinstance(self.app.screen, ErrorDialog)
            if not is_shown:
                self.app._handle_exception(error)
