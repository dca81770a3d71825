"""A reporter without a supervisor, for tests of what a rank sends."""

from __future__ import annotations

from typing import TypeVar

from distrain.runners.protocol.events import Event, Window
from distrain.runners.protocol.reporter import NullReporter

T = TypeVar("T")


class RecordingReporter(NullReporter):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)

    def events_of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def windows(self) -> list[Window]:
        return self.events_of(Window)
