"""A loader of training data whose batches are measured and counted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from distrain.runners.distributed.timing import Stamp
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.batch_samples import counting
from distrain.runners.instrumentation.loop_events import END, LEFT
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.step_counter import BATCHES
from distrain.runners.instrumentation.training_loop import MOST_EVENTS

Batch = TypeVar("Batch")
_END: Any = object()
_OWN = ("_loader", "_session", "_batches")


def make_tracked(loader: Iterable[Batch], session: RankSession) -> Tracked[Batch]:
    """Return what gives the batches of a loader; an iterator if the loader is one."""
    if isinstance(loader, Tracked):  # its batches would count twice
        loader = loader._loader
    return (TrackedIterator if isinstance(loader, Iterator) else Tracked)(loader, session)


class Tracked(Generic[Batch]):
    """Gives the batches of a loader in each pass, and has its length, items and attributes.

    Copies of it are copies of the loader, so that it can also be pickled.
    """

    def __init__(self, loader: Iterable[Batch], session: RankSession) -> None:
        self._loader: Any = loader
        self._session = session

    def __iter__(self) -> Iterator[Batch]:
        # The loader's iterator is made at once, as workers begin to load then.
        return _observe(iter(self._loader), self._session)

    def __len__(self) -> int:
        return len(self._loader)

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getitem__(self, key: Any) -> Any:
        return self._loader[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of a protocol, which this class has not
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:  # such as the epoch, by which the loader chooses the order
            setattr(self._loader, name, value)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return copy.copy, (self._loader,)


class TrackedIterator(Tracked[Batch]):
    """Gives the batches of a loader that is an iterator itself, such as a generator."""

    _batches: Iterator[Batch] | None = None

    def __iter__(self) -> Iterator[Batch]:
        self._batches = super().__iter__()  # some begin again
        return self

    def __next__(self) -> Batch:
        if self._batches is None:
            self._batches = _observe(self._loader, self._session)
        try:
            return next(self._batches)
        except StopIteration:
            self._batches = None
            raise


def _observe(batches: Iterator[Batch], session: RankSession) -> Iterator[Batch]:
    """Yield batches. A step ends when the next one is asked for, if nothing else ends it.

    The time between the end of a loader and the next one belongs to no window: the program may
    evaluate or save.
    """
    loop, events, automatic = session.loop, session.loop.events, session.automatic
    source = object()
    count: Callable[[Any], int | None] | None = None
    begin = _begin(session)
    try:
        while (batch := next(batches, _END)) is not _END:
            try:  # not in functions, because calls cost time in every step
                if count is None:
                    count = counting(batches, batch)
                events.note_batch(begin, loop.stamp(), source, count(batch))
                if add := automatic.add_batch:
                    add(source, batch)
            except Exception:
                problems.print_first()
            yield batch
            try:
                if loop.counter.kind <= BATCHES or len(events.others) >= MOST_EVENTS:
                    session.finish_batch()
                begin = loop.stamp()
            except Exception:
                problems.print_first()
    except GeneratorExit:  # the program has left the loop
        begin = None
        raise
    finally:
        _end(session, begin, source)


def _begin(session: RankSession) -> Stamp | None:
    """Begin a pass; return this moment."""
    try:
        session.begin_track()
        return session.loop.stamp()
    except Exception:
        problems.print_first()
        return None


def _end(session: RankSession, begin: Stamp | None, source: object) -> None:
    """End a pass after a wait; where none has begun, the last batch may be a step."""
    try:
        if begin is None:
            session.leave_batch()
        loop = session.loop
        kind = LEFT if begin is None else END
        loop.note((kind, begin, loop.stamp(), source))
    except Exception:
        problems.print_first()
