"""The backward pass, from the call of `backward` to its return. It ends the forward pass."""

from __future__ import annotations

import functools
from threading import get_ident
from time import perf_counter
from typing import Any

from torch import autograd

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.automatic import hooked
from distrain.runners.instrumentation.automatic.optimizers import is_recorded
from distrain.runners.instrumentation.training_loop import MOST_EVENTS

_is_within = False  # a checkpoint of activations calls it from within


def install() -> None:
    backward = autograd.backward

    @functools.wraps(backward)
    def observe(*arguments: Any, **options: Any) -> None:
        global _is_within
        if _is_within or get_ident() != hooked.thread:
            backward(*arguments, **options)
            return
        begin = _stamp(is_begin=True) if hooked.uses_cuda else perf_counter()
        _is_within = True
        try:
            backward(*arguments, **options)
        finally:
            _is_within = False
        if begin is not None:
            end = _stamp(is_begin=False) if hooked.uses_cuda else perf_counter()
            hooked.events.note_backward(begin, end)
            if len(hooked.events.others) >= MOST_EVENTS:
                hooked.replay()

    autograd.backward = observe


def _stamp(*, is_begin: bool) -> Any:
    """Return a stamp; None for the `begin` of a pass that a CUDA graph records."""
    try:
        return None if is_begin and is_recorded() else hooked.stamp()
    except Exception:
        problems.print_first()
        return None
