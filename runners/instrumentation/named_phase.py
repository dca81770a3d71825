"""A phase that a program names: `with distrain.phase("forward"):`."""

from __future__ import annotations

import time

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import PHASES


class NamedPhase:
    """Measures its body: as a phase of the step, or by another name as a curve `phase/NAME`."""

    def __init__(self, session: RankSession, name: str) -> None:
        self._session = session
        self._name = name
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        try:
            if self._name in PHASES:
                self._session.sources.named_phases.add(self._name)
                loop = self._session.loop
                loop.events.append((loop.ENTER, loop.stamp(), None, self._name))
        except Exception:
            problems.print_first()

    def __exit__(self, *_: object) -> None:
        try:
            if self._name in PHASES:
                loop = self._session.loop
                loop.events.append((loop.LEAVE, loop.stamp(), None, self._name))
                loop.limit()
            else:
                seconds = time.perf_counter() - self._began
                self._session.log({f"phase/{self._name}": seconds})
        except Exception:
            problems.print_first()
