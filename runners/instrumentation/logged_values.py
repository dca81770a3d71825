"""Values that a script logs, until they are reported. Values on a device are never waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from distrain.runners.protocol.events import Logged, LoggedStats

MOST_NAMES = 5_000
LONGEST_NAME = 200
MOST_PENDING = 4096  # values of a name, until they are reported


class LoggedValues:
    """Collects values by name.

    `calls` counts calls of `add`. A step before the last one of the same name is left out,
    because curves go forward.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._steps: dict[str, int] = {}
        self._values: dict[str, list[Any]] = {}
        self._copies: list[_DeviceCopy] = []

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Keep numbers, and copies of tensors with one element. Raises TypeError or ValueError."""
        self.calls += 1
        for name, value in values.items():
            name = str(name)[:LONGEST_NAME]
            is_new = name not in self._steps
            if step < self._steps.get(name, step) or (is_new and len(self._steps) >= MOST_NAMES):
                continue
            copied = _copy(value)
            self._steps[name] = step
            pending = self._values.setdefault(name, [])
            if len(pending) < MOST_PENDING:
                pending.append(copied)

    def restart(self) -> None:
        """Let the curves begin again at step 0, before any of them was reported."""
        self._steps = dict.fromkeys(self._steps, 0)

    def take(self, rank: int, *, wait: bool) -> Iterator[Logged]:
        """Yield what has been read since the last call; with `wait` all, also from devices."""
        if self._values:
            self._copies.append(_DeviceCopy(rank, self._values, self._steps))
            self._values = {}
        while self._copies and (wait or self._copies[0].is_ready()):
            yield from self._copies.pop(0).events()


class _DeviceCopy:
    """The values of a window, those on a device on their way to the host."""

    def __init__(self, rank: int, values: dict[str, list[Any]], steps: dict[str, int]) -> None:
        self._time = time.time()
        self._rank = rank
        self._steps = {name: steps[name] for name in values}
        self._values = values
        self._places = [
            (name, index)
            for name, pending in values.items()
            for index, value in enumerate(pending)
            if not isinstance(value, float)
        ]
        if self._places:
            import torch  # the program has loaded it

            tensors = torch.stack([values[name][index] for name, index in self._places])
            self._host = torch.empty(tensors.shape, dtype=tensors.dtype, pin_memory=True)
            self._host.copy_(tensors, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def is_ready(self) -> bool:
        return not self._places or bool(self._event.query())

    def events(self) -> Iterator[Logged]:
        """Yield an event for each step at which names ended."""
        if self._places:
            self._event.synchronize()
            for (name, index), value in zip(self._places, self._host.tolist(), strict=True):
                self._values[name][index] = value
        by_step: dict[int, dict[str, LoggedStats]] = {}
        for name, pending in self._values.items():
            by_step.setdefault(self._steps[name], {})[name] = LoggedStats.of(pending)
        for step, values in sorted(by_step.items()):
            yield Logged(time=self._time, rank=self._rank, step=step, values=values)


def _copy(value: Any) -> Any:
    """Return a float, or a copy of a tensor that is on a device: the program may change it."""
    if not hasattr(value, "detach"):
        return float(value)
    value = value.detach()
    return value.reshape(()).float().clone() if value.is_cuda else value.item() * 1.0
