"""Values that a script logs, until they are reported. Values on a device are never waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from distrain.runners.protocol.events import Logged, LoggedStats

MOST_NAMES = 5_000
LONGEST_NAME = 200
MOST_PENDING = 4096  # values of a name, until they are reported
MOST_ADDED = 1_000_000  # values of all names


class LoggedValues:
    """Collects values by name.

    `calls` counts calls of `add`. A step before the last one of the same name is left out,
    because curves go forward.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._added: list[tuple[str, Any, int, str]] = []  # in the order of the calls
        self._steps: dict[str, int] = {}
        self._sources: dict[str, str] = {}
        self._copies: list[_DeviceCopy] = []

    def add(self, values: Mapping[str, Any], step: int, source: str = "") -> None:
        """Keep numbers, and copies of tensors with one element. Raises TypeError or ValueError.

        Scripts may log the same values with several libraries: of each name those of the first
        `source` are kept, or those without one, which the script has passed to distrain.
        """
        self.calls += 1
        added = self._added
        if len(added) >= MOST_ADDED:
            return
        for name, value in values.items():
            added.append((name, value if type(value) is float else _copy(value), step, source))

    def restart(self) -> None:
        """Let the curves begin again at step 0, before any of them was reported."""
        self._added = [(name, value, 0, source) for name, value, _, source in self._added]

    def take(self, rank: int, *, wait: bool) -> Iterator[Logged]:
        """Yield what has been read since the last call; with `wait` all, also from devices."""
        if values := self._by_name():
            self._copies.append(_DeviceCopy(rank, values, self._steps))
        while self._copies and (wait or self._copies[0].is_ready()):
            yield from self._copies.pop(0).events()

    def _by_name(self) -> dict[str, list[Any]]:
        """Return the values that were added, by name."""
        added, self._added = self._added, []
        steps, sources = self._steps, self._sources
        found: dict[str, list[Any]] = {}
        for name, value, step, source in added:
            name = str(name)[:LONGEST_NAME]
            last = steps.get(name)
            if len(steps) >= MOST_NAMES if last is None else step < last:
                continue
            if sources.setdefault(name, source) != source:
                if source:
                    continue  # another library has logged this name before
                sources[name] = source
                if step == last:
                    continue
            steps[name] = step
            pending = found.setdefault(name, [])
            if len(pending) < MOST_PENDING:
                pending.append(value)
        return found


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
    return value.detach().reshape(()).float().clone() if value.is_cuda else value.item() * 1.0
