"""Given a clock of a CUDA device, then it records the same few events, each once it was read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from distrain.runners.distributed.timing import CudaClock


class Event:
    made = 0
    now = 0

    def __init__(self, enable_timing: bool) -> None:
        Event.made += 1

    def record(self, stream: Any) -> None:
        Event.now += 1
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: Event) -> float:
        return 1000.0 * (later.at - self.at)


def test_events_are_recorded_again_after_they_were_read() -> None:
    clock = CudaClock(0)
    clock._cuda = SimpleNamespace(Event=Event, current_stream=lambda device: None)  # type: ignore
    clock.start()
    for _ in range(10):
        for _ in range(50):
            at = clock.stamp()
            clock.mark("forward", at)
            clock.mark("other", at)
            clock.mark("backward")
        reading = clock.close().get()
        assert reading.seconds == 101.0
        assert reading.phases["forward"] == reading.phases["backward"] == 50.0
    assert Event.made == 111  # those of a window, and the ends of all windows
