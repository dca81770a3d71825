"""The wait for batches of torch's DataLoader, and their samples."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch import is_grad_enabled
from torch.utils.data.dataloader import _BaseDataLoaderIter

from distrain.runners.distributed.timing import Stamp
from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked
from distrain.runners.instrumentation.automatic.training_data import TrainingData
from distrain.runners.instrumentation.batch_samples import counting
from distrain.runners.instrumentation.loop_events import BATCH, END, EVALUATION, LEFT
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.instrumentation.training_loop import MOST_EVENTS
from distrain.runners.protocol.evaluated_batches import note_evaluated_batch

WITHOUT_GRADIENTS = "batches of a DataLoader were only read without gradients, as to evaluate"

_training_data: TrainingData
_Count = Callable[[Any], "int | None"]
_sources: dict[int, weakref.ref[Any]] = {}  # by the ids of iterators that are alive
_counts: dict[int, _Count] = {}  # what counts the samples of their batches
# Those whose batches need no more than to be noted.
_usual: dict[int, tuple[weakref.ref[Any], _Count]] = {}
_Wait = tuple[int, Stamp, "weakref.ref[Any] | None"]  # the kind of the batch, begin, source


def install() -> None:
    next_batch = _BaseDataLoaderIter.__next__

    @functools.wraps(next_batch)
    def observe(batches: Any) -> Any:
        usual = _usual.get(id(batches))
        if usual is None or get_ident() != hooked.thread or not is_grad_enabled():
            return _observe(next_batch, batches)
        source, count = usual
        begin = hooked.stamp()
        try:
            batch = next_batch(batches)
        except StopIteration:
            _note_end(batches, (BATCH, begin, source))
            raise
        hooked.events.note_batch(begin, hooked.stamp(), source, count(batch))
        if len(hooked.events.others) >= MOST_EVENTS:
            hooked.replay()
        return batch

    _BaseDataLoaderIter.__next__ = observe  # type: ignore[assignment, method-assign]
    _BaseDataLoaderIter._reset = hooked.followed_by(  # type: ignore[method-assign]
        _begin_again, _BaseDataLoaderIter._reset
    )


def attach(session: RankSession) -> None:
    """Learn from now on which data a program trains with."""
    global _training_data
    _training_data = TrainingData(lambda: session.steps)
    _usual.clear()
    session.automatic.begin_track = _usual.clear


def _observe(next_batch: Callable[[Any], Any], batches: Any) -> Any:
    if get_ident() != hooked.thread:
        return next_batch(batches)
    wait = None if hooked.session.tracks else _begin(batches)
    try:
        batch = next_batch(batches)
    except StopIteration:
        _note_end(batches, wait)
        raise
    if (wait and wait[0] == EVALUATION) or not is_grad_enabled():
        note_evaluated_batch()
    _note_batch(batches, batch, wait)
    return batch


def _begin(batches: Any) -> _Wait | None:
    """Begin to wait for a batch of an iterator."""
    try:
        session = hooked.session
        loop = session.loop
        if not is_grad_enabled():
            if not loop.counter.has_batches:
                session.sources.reasons["samples"] = WITHOUT_GRADIENTS
            return EVALUATION, loop.stamp(), None
        source = _sources.get(id(batches)) or _source_of(batches)
        may_train = _training_data.may_train(batches._dataset)
        return BATCH if may_train else EVALUATION, loop.stamp(), source
    except Exception:
        problems.print_first()
        return None


def _note_batch(batches: Any, batch: Any, wait: _Wait | None) -> None:
    if wait is None:
        return
    try:
        kind, begin, source = wait
        session = hooked.session
        loop = session.loop
        end = loop.stamp()
        count = _counts.get(id(batches)) or counting(batches, batch)
        loop.note((kind, begin, end, (source, count(batch))))
        if source is not None:
            _counts[id(batches)] = count
            if _training_data.knows(batches._dataset) and not session.automatic.add_batch:
                _usual[id(batches)] = source, count
        if kind == BATCH and (add := session.automatic.add_batch):
            add(source, batch)
        loop.limit()
    except Exception:
        problems.print_first()


def _note_end(batches: Any, wait: _Wait | None) -> None:
    if wait is None:
        return
    try:
        kind, begin, source = wait
        if source is not None:
            _leave(id(batches._dataset))
        loop = hooked.session.loop
        end = loop.stamp()
        loop.note((END, begin if kind == BATCH else None, end, source))
    except Exception:
        problems.print_first()


def _begin_again(batches: Any, *_: Any, **__: Any) -> None:
    """Note a new pass of an iterator with persistent workers; the last one may be left early."""
    if get_ident() == hooked.thread and (source := _sources.pop(id(batches), None)):
        _counts.pop(id(batches), None)
        _training_data.begin_again(id(batches._dataset))
        _usual.clear()
        hooked.loop.note((LEFT, None, None, source))


def _source_of(batches: Any) -> weakref.ref[Any]:
    """Return what stands for a pass among the events, and notes that its iterator was dropped."""
    key, data_set = id(batches), id(batches._dataset)

    def leave(source: weakref.ref[Any]) -> None:
        if _sources.get(key) is not source:  # that of an earlier pass
            return
        del _sources[key]
        _counts.pop(key, None)
        _leave(data_set)
        loop = hooked.session.loop
        loop.note((LEFT, None, None, source))

    _sources[key] = weakref.ref(batches, leave)
    return _sources[key]


def _leave(data_set: int) -> None:
    _training_data.leave(data_set)
    _usual.clear()  # what is read next decides about the data set that was left
