"""The wait for batches of torch's DataLoader, and their samples."""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import Any

from torch import is_grad_enabled
from torch.utils.data.dataloader import _BaseDataLoaderIter

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked, rank_facts
from distrain.runners.instrumentation.step_counter import count_samples

_trained: set[int] = set()  # ids of data sets whose batches steps have followed
_new: tuple[int, int] | None = None  # another data set, and the steps before its last batch
_sources: dict[int, weakref.ref[Any]] = {}  # by the ids of iterators that are alive


def install() -> None:
    next_batch = _BaseDataLoaderIter.__next__

    @functools.wraps(next_batch)
    def observe(batches: Any) -> Any:
        global _new
        session = hooked.session
        if get_ident() != hooked.thread or session.tracks:
            return next_batch(batches)
        loop = session.loop
        with_gradients = is_grad_enabled()
        try:
            if id(batches._dataset) in _trained:
                is_training = with_gradients
                _new = None
            else:
                is_training = with_gradients and _may_train(batches)
            begin = loop.stamp()
        except Exception:
            problems.print_first()
            return next_batch(batches)
        try:
            batch = next_batch(batches)
        except StopIteration:
            source = _sources.get(id(batches))
            loop.events.append((loop.END, begin if is_training else None, loop.stamp(), source))
            raise
        try:
            end = loop.stamp()
            source = (_sources.get(id(batches)) or _source_of(batches)) if with_gradients else None
            extra = (source, count_samples(batch))
            loop.events.append((loop.BATCH if is_training else loop.EVALUATION, begin, end, extra))
            if rank_facts.wants_batches and is_training:
                rank_facts.add_batch(source, batch)
            loop.limit()
        except Exception:
            problems.print_first()
        return batch

    _BaseDataLoaderIter.__next__ = observe  # type: ignore[assignment, method-assign]


def _source_of(batches: Any) -> weakref.ref[Any]:
    """Return what stands for an iterator among the events, and notes that it was dropped."""
    key = id(batches)

    def leave(source: weakref.ref[Any]) -> None:
        del _sources[key]
        loop = hooked.session.loop
        loop.events.append((loop.LEFT, None, None, source))

    _sources[key] = weakref.ref(batches, leave)
    return _sources[key]


def _may_train(batches: Any) -> bool:
    """Return whether batches may be training data: no others are known, or steps followed them.

    Of a data set that is new the first steps tell.
    """
    global _new
    key = id(batches._dataset)
    steps = hooked.session.steps
    if _new is not None and steps > _new[1]:
        _trained.add(_new[0])
    _new = None
    if key not in _trained:
        _new = key, steps
    return key in _trained or not _trained
