"""Values that a script logs, until they are reported. Values on a device are never waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

from distrain.runners.instrumentation import problems
from distrain.runners.instrumentation.plain_values import in_parts, to_float, to_name
from distrain.runners.protocol.events import Logged, LoggedStats, Notice

MOST_NAMES = 5_000
MOST_ADDED = 1_000_000  # values of all names, until they are reported
NAMES_PER_MESSAGE = 500  # of the greatest length they still fit into a line
CHECK_S = 0.001
OTHER_THREAD_S = 1.0  # to wait for another thread at the end of the program


class LoggedValues:
    """Collects values by name.

    `calls` counts calls of `add`, and `sources` are those that have logged. Curves go forward: of a
    name whose steps the script gives, a step before the last one is left out; a notice names the
    first one.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.sources: dict[str, None] = {}
        self._added: list[tuple[Any, Any, int, str, bool]] = []  # in the order of the calls
        self._names: dict[Any, str] = {}  # as they are reported, by what the script has passed
        self._steps: dict[str, int] = {}
        self._first_steps: dict[str, int] = {}
        self._given: set[str] = set()  # names with steps that the script has given
        self._sources: dict[str, str] = {}
        self._windows: list[_LoggedWindow] = []
        self._dropped = 0
        self._back: str | None = None  # the first step back; empty once it was reported
        self._taking = threading.RLock()

    def add(self, values: Mapping[Any, Any], step: int, source: str, is_given: bool) -> None:
        """Keep numbers, and copies of tensors with one element.

        The step `is_given` by the script, or it is counted.

        Scripts may log the same values with several libraries: of each name those of the first
        `source` are kept, or those without one, which the script has passed to distrain.
        """
        self.calls += 1
        if len(self._added) >= MOST_ADDED:
            self._drop_older()
        for name, value in values.items():
            if type(value) is not float and (value := copy_value(name, value)) is None:
                continue
            # Another thread may have taken the list since the last value.
            self._added.append((name, value, step, source, is_given))

    @property
    def are_numbers(self) -> bool:
        """Whether no tensor is among the values that `take` has not yielded yet."""
        return not self._windows and all(isinstance(value, float) for _, value, *_ in self._added)

    def _drop_older(self) -> None:
        """Drop the older half of the values, apart from the last one of each name."""
        half = len(self._added) // 2
        last = {(each[0], each[3]): each for each in self._added[:half]}
        kept = [*last.values()][:MOST_NAMES]
        self._dropped += half - len(kept)
        self._added[:half] = kept

    def restart(self) -> None:
        """Let the steps that are counted begin again at 0, apart from those that were reported."""
        self._added = [
            (name, value, step if is_given else 0, source, is_given)
            for name, value, step, source, is_given in self._added
        ]

    def take(self, rank: int, until: float = 0.0) -> Iterator[Logged | Notice]:
        """Yield what has been read since the last call; nothing if another thread is doing so.

        Values that are on their way from a device are waited for `until` that time of
        `time.monotonic`.
        """
        # With two at once, later values could be recorded first, and the earlier ones dropped.
        if not self._taking.acquire(timeout=OTHER_THREAD_S if until else 0):
            return
        try:
            yield from self._take(rank, until)
        finally:
            self._taking.release()

    def _take(self, rank: int, until: float) -> Iterator[Logged | Notice]:
        if self._dropped:
            text = f"rank {rank}: {self._dropped:,} logged values were dropped, because more than "
            text += f"{MOST_ADDED:,} were logged at once"
            self._dropped = 0
            yield Notice(time=time.time(), rank=rank, text=text)
        first, others = self._by_name()
        if self._back:
            text = f"rank {rank}: logged values are left out where the step of a name goes back, "
            yield Notice(time=time.time(), rank=rank, text=text + self._back)
            self._back = ""
        for values, steps in ((first, self._first_steps), (others, self._steps)):
            if values:
                self._windows.append(_LoggedWindow(rank, values, steps))
        while self._windows and is_ready_by(until, self._windows[0]):
            yield from self._windows.pop(0).events()

    def _by_name(self) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the values that were added, by name: the first one of each, and the others.

        The first one is a point by itself, so that a record knows where its curve begins.
        """
        added, self._added = self._added, []
        names, steps, sources = self._names, self._steps, self._sources
        first: dict[str, list[Any]] = {}
        others: dict[str, list[Any]] = {}
        for given, value, step, source, is_given in added:
            self.sources[source] = None
            name = names.get(given)
            if name is None:
                if len(names) >= MOST_NAMES:
                    problems.print_first(f"more than {MOST_NAMES:,} names", is_exception=False)
                    continue
                name = names[given] = to_name(given)
            if is_given:
                self._given.add(name)
            last = steps.get(name)
            if last is not None and step < last:
                if name in self._given:
                    if self._back is None and sources[name] == source:
                        self._back = f"as that of {name!r} from {last:,} to {step:,}"
                    continue
                step = last  # calls were counted before the first step of the run
            if sources.setdefault(name, source) != source:
                if source:
                    continue  # another library has logged this name before
                sources[name] = source
                if step == last:
                    continue
            steps[name] = step
            if last is None:
                first[name], self._first_steps[name] = [value], step
            else:
                others.setdefault(name, []).append(value)
        return first, others


class _LoggedWindow:
    """The values of a window, those on devices on their way to the host."""

    def __init__(self, rank: int, values: dict[str, list[Any]], steps: dict[str, int]) -> None:
        self._time = time.time()
        self._rank = rank
        self._steps = {name: steps[name] for name in values}
        self._values = values
        by_device: dict[Any, list[tuple[list[Any], int]]] = {}
        for pending in values.values():
            for index, value in enumerate(pending):
                if not isinstance(value, float):
                    by_device.setdefault(value.device, []).append((pending, index))
        self._copies = [(places, *_copy_to_host(places)) for places in by_device.values()]

    def is_ready(self) -> bool:
        return all(event.query() for _, _, event in self._copies)

    def events(self) -> Iterator[Logged]:
        """Yield events for each step at which names ended."""
        for places, host, _ in self._copies:
            for (pending, index), value in zip(places, host.tolist(), strict=True):
                pending[index] = value
        by_step: dict[int, dict[str, LoggedStats]] = {}
        for name, pending in self._values.items():
            by_step.setdefault(self._steps[name], {})[name] = LoggedStats.of(pending)
        for step, values in sorted(by_step.items()):
            for part in in_parts(values.items(), NAMES_PER_MESSAGE):
                yield Logged(time=self._time, rank=self._rank, step=step, values=dict(part))


def _copy_to_host(places: list[tuple[list[Any], int]]) -> tuple[Any, Any]:
    """Begin to copy the tensors at these places, which are on one device.

    Return the copy, and the event that the device reaches after it.
    """
    import torch  # the program has loaded it

    tensors = torch.stack([pending[index] for pending, index in places])
    host = torch.empty(tensors.shape, dtype=tensors.dtype, pin_memory=True)
    host.copy_(tensors, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensors.device))  # it may not be the current device
    return host, event


class _Readable(Protocol):
    def is_ready(self) -> bool: ...


def is_ready_by(until: float, each: _Readable) -> bool:
    """Return whether something is ready, at the latest at that time of `time.monotonic`."""
    while not each.is_ready():
        if time.monotonic() >= until:
            return False
        time.sleep(CHECK_S)
    return True


def copy_value(name: Any, value: Any) -> Any:
    """Return a float, or a copy of a tensor that is on a device, as the program may change it.

    Of anything else return None, and print why.
    """
    try:  # in one function, because calls cost time in every step
        if _is_distributed(value.__class__):
            value = _to_local(value)
        if getattr(value, "is_cuda", False):
            return value.detach().reshape(()).float().clone()
        item = getattr(value, "item", None)
        return to_float(item() if item else value)
    except (TypeError, ValueError, RuntimeError):  # no number, or several
        problems.print_first(f"{name!r}, a {type(value).__name__}", is_sentence=True)
        return None
    except Exception:
        problems.print_first(repr(name))
        return None


@cache
def _is_distributed(kind: Hashable) -> bool:
    """Return whether a type is that of a DTensor."""
    return hasattr(kind, "placements")


def _to_local(value: Any) -> Any:
    if not all(each.is_replicate() for each in value.placements):
        text = "a DTensor that is not replicated: log value.full_tensor() of all ranks instead"
        raise ValueError(text)
    return value.to_local()
