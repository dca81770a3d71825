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

    Dimension 0 counts samples where it is what the sampler of a DataLoader has drawn for the batch.
    Where it is not, as in padded sequences that begin with their time, what it has drawn does.
    """
    sampler: Any = getattr(batches, "_index_sampler", None)
    kind = type(sampler)
    if (kind.__module__, kind.__name__) != _BATCH_SAMPLER:
        return count_samples
    size = int(sampler.batch_size)
    try:
        length = len(sampler.sampler)
    except Exception:  # unknown, as of an iterable data set, whose last batch may be smaller
        return count_samples if count_samples(first) == size else lambda _: None
    iterator: Any = weakref.ref(batches)
    # A sampler of the program's own may draw less than its length, so that a pass ends early.
    is_torchs = type(sampler.sampler).__module__.startswith("torch.")
    may_end_early = not is_torchs and count_samples(first) == min(size, length)

    def count(batch: Any) -> int | None:
        samples = count_samples(batch)
        if samples == size:  # the usual case
            return samples
        drawn: int = min(size, length - (iterator()._num_yielded - 1) * size)
        is_unknown = drawn <= 0 or (may_end_early and samples != drawn)
        return None if is_unknown else drawn

    return count
