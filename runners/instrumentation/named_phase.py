"""A phase that a program names: `with distrain.phase("forward"):`."""

from __future__ import annotations

import time
from threading import get_ident

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.loop_events import ENTER, LEAVE
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.sources import NAMED
from distrain.runners.instrumentation.training_loop import MOST_EVENTS
from distrain.runners.protocol.events import PHASES


class NamedPhase:
    """Measures its body: as a phase of the step, or as a curve `phase/NAME`.

    It is a curve by another name, and in a thread other than the one that trains.
    """

    __slots__ = ("_began", "_is_phase", "_name", "_session")

    def __init__(self, session: RankSession, name: str) -> None:
        self._session = session
        self._name = name
        self._is_phase = name in PHASES and get_ident() == session.thread
        self._began = 0.0

    def __enter__(self) -> None:
        try:
            if self._is_phase:
                loop = self._session.loop
                loop.note((ENTER, loop.stamp(), None, self._name))
            else:
                self._began = time.perf_counter()
        except Exception:
            problems.print_first()

    def __exit__(self, *_: object) -> None:
        try:
            if self._is_phase:
                loop = self._session.loop
                loop.note((LEAVE, loop.stamp(), None, self._name))
                if len(loop.events.others) >= MOST_EVENTS:
                    loop.replay()
            else:
                seconds = time.perf_counter() - self._began
                self._session.log({f"phase/{self._name}": seconds}, source=NAMED)
        except Exception:
            problems.print_first()
