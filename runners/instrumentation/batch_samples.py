"""How many samples a batch has, whatever a script's loader makes of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

_SEQUENCES = (list, tuple)
_BATCH_SAMPLER = ("torch.utils.data.sampler", "BatchSampler")


def count_samples(batch: Any) -> int | None:
    """Return dimension 0 of the first tensor in a batch; None where there is no such tensor.

    The tensors of a list in a list may be single samples, so they are not looked at.
    """
    try:  # the usual cases first, because it is asked for in every step
        return int((batch[0] if isinstance(batch, _SEQUENCES) else batch).shape[0])
    except Exception:  # something else, also a nested tensor, whose shape cannot be read
        return _count_in_parts(batch)


def _count_in_parts(batch: Any) -> int | None:
    if isinstance(batch, Mapping):
        parts = [*batch.values()]
    elif isinstance(batch, _SEQUENCES):
        parts = [*batch]
    else:
        return None
    for part in parts:
        try:
            return int(part.shape[0])
        except Exception:
            continue
    nested = [part for part in parts if isinstance(part, Mapping | list | tuple)]
    if len(nested) > 1 and not isinstance(batch, Mapping):  # may be one for each sample
        return None
    found = (count_samples(part) for part in nested if isinstance(part, Mapping))
    return next((samples for samples in found if samples is not None), None)


def counting(batches: Any, first: Any) -> Callable[[Any], int | None]:
    """Return what counts the samples of the batches of an iterator, given the first one of a pass.

    What the sampler of a DataLoader drew for that batch decides whether dimension 0 counts samples;
    if not, what it draws does.
    """
    sampler: Any = getattr(batches, "_index_sampler", None)
    kind = type(sampler)
    if (kind.__module__, kind.__name__) != _BATCH_SAMPLER:
        return count_samples
    size = int(sampler.batch_size)
    try:
        length = len(sampler.sampler)
    except TypeError:  # of an iterable data set, whose last batch may be smaller
        return count_samples if count_samples(first) == size else lambda _: None
    if count_samples(first) == min(size, length):
        return count_samples
    iterator: Any = weakref.ref(batches)
    return lambda _: min(size, length - (iterator()._num_yielded - 1) * size)
