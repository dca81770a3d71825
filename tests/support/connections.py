"""Connections of a coordinator without sockets."""

from __future__ import annotations

from distrain.runners.protocol.events import Event
from distrain.runners.supervision.connection import Connection, Listener


class SentEvents(Connection):
    """A connection that keeps what is sent over it."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self.sent: list[Event] = []

    def send(self, event: Event) -> None:
        self.sent.append(event)
