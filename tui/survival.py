"""Keeps the app alive through an error of its own: runs are not its children, but the view is."""

from __future__ import annotations

from textual.message import Message
from textual.message_pump import MessagePump


class Surviving(MessagePump):
    """An app or screen that goes on after a handler has raised; Textual would end the app."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)
