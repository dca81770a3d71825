"""A loader of training data whose batches are measured and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.step_counter import BATCHES, count_samples

Batch = TypeVar("Batch")


class Tracked(Generic[Batch]):
    """Gives the batches of a loader, in each pass, and has its length and its attributes."""

    def __init__(self, loader: Iterable[Batch], session: RankSession) -> None:
        self._loader = loader
        self._session = session

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches. A step ends when the next batch is asked for, if nothing else ends it.

        The time between the end of a loader and the next one belongs to no window: the program may
        evaluate or save.
        """
        session = self._session
        loop = session.loop
        source = object()
        session.begin_track()
        batches = iter(self._loader)
        is_first = True
        try:
            while True:
                if loop.counter.kind <= BATCHES and not is_first:
                    session.finish_batch()
                begin = loop.stamp()
                session.is_tracking = True
                try:
                    batch = next(batches)
                except StopIteration:
                    loop.events.append((loop.END, begin, loop.stamp(), source))
                    return
                finally:
                    session.is_tracking = False
                extra = (source, count_samples(batch))
                loop.events.append((loop.BATCH, begin, loop.stamp(), extra))
                is_first = False
                yield batch
        except GeneratorExit:  # the program has left the loop
            session.finish_batch()
            now = loop.stamp()
            loop.events.append((loop.END, now, now, source))
            raise
