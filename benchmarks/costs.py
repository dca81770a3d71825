"""What the engine's own calls cost inside a step, measured where they are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from runners import loop
from runners.training import Training

CALIBRATION = 10_000


class Watch:
    """CPU time of this thread inside calls; a call inside another counts to the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = False
        self._own = 0.0
        idle = self.on("watch", lambda: None)
        for _ in range(CALIBRATION):
            idle()
        self._own = self.seconds.pop("watch") / CALIBRATION

    def on(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, whose time is added up under `label`, without what the watch itself takes."""
        self.seconds[label] = 0.0

        @wraps(call)
        def timed(*given: Any, **named: Any) -> Any:
            if self._inside:
                return call(*given, **named)
            self._inside = True
            began = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                self.seconds[label] += time.thread_time() - began - self._own
                self._inside = False

        return timed


@contextmanager
def time_per_call(run: Training) -> Iterator[dict[str, float]]:
    """Seconds of CPU spent in each of the engine's calls inside the `with`, by name."""
    watched: list[tuple[str, Any, str]] = [
        ("clock.mark", run.clock, "mark"),
        ("meter.loss", run.meter, "loss"),
        ("meter.step, windows included", run.meter, "step"),
        ("reporter.goes_on", run.reporter, "goes_on"),
        ("strategy.weight", run.strategy, "weight"),
        ("strategy.reduce", run.strategy, "reduce"),
        ("precision.scaled", run.precision, "scaled"),
        ("rate", run, "rate"),
        ("set_rate", loop, "set_rate"),
        ("pause", loop, "_pause"),
    ]
    watch = Watch()
    before = [(holder, name, vars(holder).get(name)) for _, holder, name in watched]
    for label, holder, name in watched:
        setattr(holder, name, watch.on(label, getattr(holder, name)))
    try:
        yield watch.seconds
    finally:
        for holder, name, own in before:
            if own is None:
                delattr(holder, name)
            else:
                setattr(holder, name, own)


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
