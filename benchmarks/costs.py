"""Measure the CPU time of the engine's own calls inside a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from distrain.runners.training import loop
from distrain.runners.training.trainer import Training

CALIBRATION = 10_000


class Watch:
    """Adds up the CPU time of this thread in watched calls; nested ones count for the outer."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = False
        self._own = 0.0
        idle = self.on("watch", lambda: None)
        for _ in range(CALIBRATION):
            idle()
        self._own = self.seconds.pop("watch") / CALIBRATION

    def on(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call` wrapped so that its time, without the watch's own, is added to `label`."""
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
    """Yield the CPU seconds spent in each of the engine's calls inside the `with`, by name."""
    watched: list[tuple[str, Any, str]] = [
        ("clock.mark", run.clock, "mark"),
        ("meter.add_loss", run.meter, "add_loss"),
        ("meter.end_step, windows included", run.meter, "end_step"),
        ("reporter.should_continue", run.reporter, "should_continue"),
        ("strategy.weight", run.strategy, "weight"),
        ("strategy.reduce", run.strategy, "reduce"),
        ("precision.scale_loss", run.precision, "scale_loss"),
        ("rate", run, "rate"),
        ("set_rate", loop, "set_rate"),
        ("pause", loop, "pause"),
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
