"""What counts as a step of a script, and which samples belong to it.

A step is, in this order, a call of `distrain.step()`, a step of the optimizer that stepped first,
or a batch of `distrain.track()`. Batches are credited to the step that follows them, so those of
an evaluation, which no step follows, are never counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

BATCHES, OPTIMIZER, CALLS = 1, 2, 3  # kinds of steps: a higher one takes the place of a lower one
_SEQUENCES = (list, tuple)


class CountedSteps(NamedTuple):
    """Steps and samples since the last report; samples are None where some are unknown."""

    steps: int
    samples: int | None


class _Unfinished:
    """Samples of one source of batches that no step has followed so far."""

    __slots__ = ("has_ended", "samples", "source")

    def __init__(self, source: object, samples: int | None) -> None:
        self.source = source
        self.samples = samples
        self.has_ended = False


class StepCounter:
    """Counts steps and samples from the events of a training loop, in their order.

    `steps` never decreases once it was taken for a report: if a higher kind of step comes later,
    the count goes on as soon as there are more steps of that kind.
    """

    def __init__(self) -> None:
        self.kind = 0
        self.steps = 0
        self._count = 0  # steps of this kind
        self._reported = 0
        self._samples: int | None = 0
        self._has_unknown = False  # samples of some step
        self._unfinished: list[_Unfinished] = []
        self._steps_with_batch = 0
        self._steps_without = 0

    @property
    def has_batches(self) -> bool:
        return self._steps_with_batch > 0

    @property
    def samples_are_known(self) -> bool:
        """Whether the samples of all batches are known, and most steps came with a batch."""
        is_fed = self._steps_with_batch >= self._steps_without
        return self.has_batches and is_fed and not self._has_unknown

    def add_batch(self, source: object, samples: int | None) -> None:
        """Add a batch of a source, any object; `samples` may be unknown."""
        if not self._unfinished:  # the usual case
            self._unfinished.append(_Unfinished(source, samples))
            return
        going_on = [each for each in self._unfinished if not each.has_ended]
        current = next((each for each in going_on if each.source is source), None)
        if current is None:
            current = _Unfinished(source, samples)
        else:
            current.samples = _add(current.samples, samples)
            going_on.remove(current)
        self._unfinished = [*going_on, current]

    def end_source(self, source: object) -> None:
        """Take the end of a source, or that the program has left it.

        Batches of it that no step has followed count only if a step comes before other batches.
        """
        for each in self._unfinished:
            if each.source is source:
                each.has_ended = True

    def finish_step(self, kind: int, samples: int | None = None) -> None:
        """Finish a step, if its kind counts. `samples` are those that the script names."""
        if kind < self.kind:
            return
        if kind > self.kind:
            self.kind = kind
            self._count = 0
            self.steps = self._reported
            if samples is not None and not self._reported:  # those of its batches too
                self._samples = 0
                self._has_unknown = False
        self._count += 1
        if self._count > self.steps:
            self.steps = self._count
        if samples is not None:
            self._unfinished.clear()
            self._credit(samples)
        elif self._unfinished:
            self._credit(self._take_unfinished())
        else:
            self._steps_without += 1

    def _take_unfinished(self) -> int | None:
        """Return the samples of the batches that belong to the step that is finished.

        Those of two sources at once may be added up in one script and not in another.
        """
        unfinished = self._unfinished
        if len(unfinished) == 1:  # the usual case
            return unfinished.pop().samples
        sources = [each for each in unfinished if not each.has_ended] or unfinished[-1:]
        self._unfinished = []
        return sources[0].samples if len(sources) == 1 else None

    def _credit(self, samples: int | None) -> None:
        self._steps_with_batch += 1
        if samples is None:
            self._samples = None
            self._has_unknown = True
        elif self._samples is not None:
            self._samples += samples

    @property
    def is_behind(self) -> bool:
        """Whether more steps of a lower kind were reported than there are of this kind."""
        return self._count < self.steps

    @property
    def unreported(self) -> int:
        """Steps since the last report."""
        return self.steps - self._reported

    @property
    def has_reported(self) -> bool:
        return self._reported > 0

    def take(self) -> CountedSteps:
        """Return what was counted since the last report."""
        taken = CountedSteps(self.unreported, self._samples)
        self._reported = self.steps
        self._samples = 0
        return taken


def _add(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def count_samples(batch: Any) -> int | None:
    """Return dimension 0 of the first tensor in a batch; None where there is no such tensor."""
    try:  # the usual cases first, because it is asked for in every step
        return int((batch[0] if isinstance(batch, _SEQUENCES) else batch).shape[0])
    except Exception:  # something else, also a nested tensor, whose shape cannot be read
        if isinstance(batch, Mapping):
            batch = batch.values()
        elif not isinstance(batch, _SEQUENCES):
            return None
    for part in batch:
        if (count := count_samples(part)) is not None:
            return count
    return None
