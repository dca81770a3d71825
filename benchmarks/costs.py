"""What the engine's own calls cost inside a step, measured where they are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from runners import loop
from runners.order import Order
from runners.training import Training


@contextmanager
def time_per_call(run: Training) -> Iterator[dict[str, float]]:
    """CPU seconds of this thread in each of the engine's calls inside the `with`, by name.

    The watch itself adds half a microsecond or so to each call. A call inside another counts
    to the outer one.
    """
    watched: list[tuple[str, Any, str]] = [
        ("clock.mark", run.clock, "mark"),
        ("meter.loss", run.meter, "loss"),
        ("meter.step, windows included", run.meter, "step"),
        ("reporter.goes_on", run.reporter, "goes_on"),
        ("order.counts", Order, "counts"),
        ("order.total", Order, "total"),
        ("strategy.weight", run.strategy, "weight"),
        ("strategy.reduce", run.strategy, "reduce"),
        ("precision.scaled", run.precision, "scaled"),
        ("rate", run, "rate"),
        ("set_rate", loop, "set_rate"),
        ("pause", loop, "_pause"),
    ]
    spent: dict[str, float] = {}
    inside = [False]
    before = [(holder, name, vars(holder).get(name)) for _, holder, name in watched]
    for label, holder, name in watched:
        setattr(holder, name, _watched(getattr(holder, name), label, spent, inside))
    try:
        yield spent
    finally:
        for holder, name, own in before:
            if own is None:
                delattr(holder, name)
            else:
                setattr(holder, name, own)


def _watched(
    call: Callable[..., Any], label: str, spent: dict[str, float], inside: list[bool]
) -> Callable[..., Any]:
    spent[label] = 0.0

    @wraps(call)
    def timed(*given: Any, **named: Any) -> Any:
        if inside[0]:
            return call(*given, **named)
        inside[0] = True
        began = time.thread_time()
        try:
            return call(*given, **named)
        finally:
            spent[label] += time.thread_time() - began
            inside[0] = False

    return timed


@contextmanager
def synchronisations() -> Iterator[dict[str, int]]:
    """How often the host waited for the GPU inside the `with`, by CUDA's name of the call."""
    counts = dict.fromkeys(
        ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"), 0
    )
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        yield counts
    for event in profiler.events() or ():
        if event.name in counts:
            counts[event.name] += 1
