"""One-shot timers that fire however busy the host is."""

from __future__ import annotations

from typing import Any

from textual.message_pump import MessagePump
from textual.timer import Timer


class ReliableTimers(MessagePump):
    """A mixin for the app and its screens.

    A timer of Textual skips the ticks that it could not send in time. One with a single tick, whose
    process is not scheduled for longer than its delay as it starts, would never fire: a preview
    would not be built, and a change of the terminal's size would be the last that the app sees.
    """

    def set_timer(self, *arguments: Any, **options: Any) -> Timer:
        timer = super().set_timer(*arguments, **options)
        timer._skip = False
        return timer
