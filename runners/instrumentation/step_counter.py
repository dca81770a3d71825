"""What counts as a step of a script, and which samples belong to it.

A step is, in this order, a call of `distrain.step()`, a step of the optimizer that stepped first,
or a batch of `distrain.track()`. Batches are credited to the step that follows them, so those of
an evaluation, which no step follows, are never counted. Training batches with backward passes also
count if another pass over data begins before the step, because their gradients may be accumulated:
but not more of them than other steps have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BATCHES, OPTIMIZER, CALLS = 1, 2, 3  # kinds of steps: a higher one takes the place of a lower one


class CountedSteps(NamedTuple):
    """Steps and samples since the last report; samples are None where some are unknown."""

    steps: int
    samples: int | None


class _Uncredited(NamedTuple):
    """Samples that are not credited yet, and the backward passes to compare with other steps."""

    backwards: int = 0
    samples: int | None = 0


class _Unfinished:
    """Samples of batches of one source that no step has followed so far."""

    __slots__ = (
        "backwards",
        "batches",
        "has_ended",
        "may_train",
        "other_steps",
        "source",
        "was_read_to_end",
    )

    def __init__(self, source: object, samples: int | None, may_train: bool) -> None:
        self.source = source
        self.batches = [samples]
        self.may_train = may_train
        self.backwards = 0  # passes since the last step
        self.has_ended = False
        self.other_steps: set[int] = set()  # the optimizers whose steps do not count, but followed
        self.was_read_to_end = False

    @property
    def samples(self) -> int | None:
        return _add_up(self.batches)

    def split_used(self) -> tuple[int | None, list[int | None]]:
        """Return the samples of the batches that are used, and the batch that is read ahead.

        Each batch that is used has a backward pass of its own, if any is seen. More batches than
        one without it may be left out by the program, or belong to the same pass.
        """
        ahead = len(self.batches) - self.backwards
        if not self.backwards or ahead <= 0:
            return self.samples, []
        if ahead > 1:
            return None, []
        return _add_up(self.batches[:-1]), self.batches[-1:]


class StepCounter:
    """Counts steps and samples from the events of a training loop, in their order.

    `steps` never decreases once it was taken for a report: if a higher kind of step comes later,
    the count goes on as soon as there are more steps of that kind. Calls in a stage that has
    begun count after the optimizer's steps before it.
    """

    def __init__(self) -> None:
        self.kind = 0
        self.steps = 0
        self._count = 0  # steps of this kind
        self._earlier_steps = 0  # of the optimizer, before the stage that has begun
        self._reported = 0
        self._samples: int | None = 0
        self._has_unknown = False  # samples of some step
        self._unfinished: list[_Unfinished] = []
        self._carried = _Uncredited()  # of passes that have ended, for the next step
        self._held = _Uncredited()  # of passes before the last step, until the next one
        self._most_backwards = 0  # of a step whose batches are certain
        # Those that have ended before steps that do not count.
        self._of_other_steps: list[_Unfinished] = []
        self._follows_whole_pass = False  # over other data, since the last step
        self._doubtful: list[_Unfinished] = []  # of the last step: which of them it was made of
        # Sources of a doubtful step that did not count, by id: weak references may be equal.
        self._left_out: dict[int, object] = {}
        self._samples_are_given = False
        self._steps_with_batch = 0
        self._steps_without = 0
        self.reading: object = object()  # the source of the last batch; None once it has ended
        self._steps_after_end = 0

    @property
    def has_batches(self) -> bool:
        return self._steps_with_batch > 0

    @property
    def samples_are_known(self) -> bool:
        """Whether the samples of all batches are known, and most steps came with a batch.

        If the script has given samples for some steps, those of all steps must be known.
        """
        most = 0 if self._samples_are_given else self._steps_with_batch
        return self.has_batches and self._steps_without <= most and not self._has_unknown

    @property
    def is_in_doubt(self) -> bool:
        """Whether the next step decides which samples belong to the last one."""
        return bool(self._doubtful or self._held.backwards)

    @property
    def is_settled(self) -> bool:
        """Whether all that came so far belongs to steps that are finished."""
        return not self._unfinished and not self._doubtful

    @property
    def has_unfinished_batch(self) -> bool:
        """Whether a batch of a source that goes on was followed by no step."""
        return any(not each.has_ended for each in self._unfinished)

    def add_batch(self, source: object, samples: int | None, may_train: bool = True) -> None:
        """Add a batch of a source, any object; `samples` may be unknown.

        `may_train` is False where it is known not to be training data.
        """
        self.reading = source
        if not self._unfinished:  # the usual case
            self._unfinished.append(_Unfinished(source, samples, may_train))
            return
        going_on = [each for each in self._unfinished if not each.has_ended]
        for each in self._unfinished:
            if each.has_ended:
                self._leave(each)
        current = next((each for each in going_on if each.source is source), None)
        if current is None:
            current = _Unfinished(source, samples, may_train)
        else:
            current.batches.append(samples)
            going_on.remove(current)
        self._unfinished = [*going_on, current]

    def _leave(self, ended: _Unfinished) -> None:
        """Leave batches that no step has followed, as other ones are read."""
        if ended.may_train and ended.backwards:
            carried = self._carried
            samples = _add_up([carried.samples, ended.split_used()[0]])
            self._carried = _Uncredited(carried.backwards + ended.backwards, samples)
        else:
            self._follows_whole_pass |= ended.was_read_to_end
        if ended.other_steps:
            self._of_other_steps.append(ended)

    def end_source(self, source: object, *, was_read_to_end: bool) -> None:
        """Take the end of a source, or that the program has left it.

        Batches of it that no step has followed count only if a step comes before other batches.
        """
        if source is not None and source is self.reading:
            self.reading = None
            self._steps_after_end = 0
        for each in self._unfinished:
            if each.source is source:
                each.has_ended = True
                each.was_read_to_end |= was_read_to_end

    def add_backward(self) -> None:
        """Add a backward pass, of the batch that was read last from a source that goes on."""
        if unfinished := self._unfinished:
            going_on = [each for each in unfinished if not each.has_ended]
            (going_on or unfinished)[-1].backwards += 1

    def add_other_step(self, optimizer: int = 0) -> None:
        """Add a step of an optimizer, by its id, that does not count, but may do so later."""
        for each in self._unfinished:
            if not each.has_ended:
                each.other_steps.add(optimizer)

    def begin_stage(self) -> None:
        """Keep the steps of the optimizer so far: calls that follow count after them."""
        if self.kind == OPTIMIZER:
            self._earlier_steps = self.steps

    def finish_step(
        self, kind: int, samples: int | None = None, times: int = 1, optimizer: int = 0
    ) -> None:
        """Finish so many steps, if their kind counts. `samples` are those that the script names.

        The batches since the last step belong to all of them, as do those that were followed by
        `add_other_step` of this optimizer.
        """
        if kind < self.kind:
            return
        if kind == CALLS and self.kind == OPTIMIZER and self._earlier_steps:
            self.kind = CALLS
            self._count = self._earlier_steps
            if self.steps > self._count:  # the optimizer's step has counted for this call
                self._count += 1
                if samples is not None:
                    self._samples_are_given = True
                    self._unfinished.clear()
                return
        if kind > self.kind:
            self.kind = kind
            self._count = 0
            self.steps = self._reported
            if samples is not None and not self._reported:  # those of its batches too
                self._samples = 0
                self._has_unknown = False
                self._doubtful = []
                self._steps_with_batch = self._steps_without = 0
        self._count += times
        if self._count > self.steps:
            self.steps = self._count
        if samples is not None:
            self._samples_are_given = True
            self._unfinished.clear()
            self._held = _Uncredited()
            self._credit(samples)
        elif self._unfinished:
            backwards = sum(each.backwards for each in self._unfinished)
            self._credit_unfinished()
            self._steps_with_batch += times - 1
            if times > 1:
                missed = [each for each in self._of_other_steps if optimizer in each.other_steps]
                self._add_samples(_add_up([each.samples for each in missed]))
                self._carried = _Uncredited()  # which were before those other steps
            self._credit_carried(backwards // times)
        else:
            self._add_step_without_batch()
            self._steps_without += times - 1
        self._carried = _Uncredited()
        self._of_other_steps.clear()
        self._follows_whole_pass = False

    def _add_step_without_batch(self) -> None:
        """Count a step that no batch came before.

        It may be another one with the last batch, unless its source has ended: then one step may
        be the end of an epoch, and more of them have samples that nobody has seen.
        """
        self._steps_without += 1
        if self.reading is None:
            self._steps_after_end += 1
            self._has_unknown |= self._steps_after_end > 1

    def _credit_unfinished(self) -> None:
        """Credit the samples of the batches that belong to the step that is finished."""
        unfinished, self._unfinished = self._unfinished, []
        if len(unfinished) == 1:  # the usual case
            batches = unfinished[0]
            if self._doubtful:
                self._settle(batches.source)
            is_certain = not (self._follows_whole_pass and batches.was_read_to_end)
            self._credit(self._take_used(batches) if is_certain else None)
            return
        going_on = [each for each in unfinished if not each.has_ended]
        if len(going_on) == 1:
            self._credit(going_on[0].samples)
        elif self._doubtful or any(id(each.source) in self._left_out for each in going_on):
            self._settle(None)
            self._credit(None)
        elif going_on:
            self._doubtful = going_on
        else:
            self._credit(None)

    def _credit_carried(self, backwards: int) -> None:
        """Credit batches of passes that have ended, if a step has so many backward passes.

        Otherwise the program may have used their gradients in another way, such as before it trains
        or to find out which weights matter. More of them than in any step so far are held until the
        next one, which has as many where they are accumulated. `backwards` are those of the other
        batches of this step.
        """
        carried, held, self._held = self._carried, self._held, _Uncredited()
        backwards += carried.backwards
        if held.backwards and backwards >= held.backwards:
            self._add_samples(held.samples)
            self._most_backwards = held.backwards
        if not carried.backwards:
            self._most_backwards = max(self._most_backwards, backwards)
        elif carried.backwards <= self._most_backwards:
            self._add_samples(carried.samples)
        else:
            self._held = _Uncredited(backwards, carried.samples)

    def _take_used(self, unfinished: _Unfinished) -> int | None:
        """Return the samples of the batches that are used, and keep one that is read ahead."""
        samples, ahead = unfinished.split_used()
        if ahead:
            unfinished.batches = ahead
            unfinished.backwards = 0
            self._unfinished.append(unfinished)
        return samples

    def _settle(self, source: object) -> None:
        """Credit the samples of the last step, as the source of this step is known.

        Those of two sources at once may be added up in one script, while in another one is an
        iterator that the program has made before it trains, and keeps.
        """
        of_source = [each for each in self._doubtful if each.source is source]
        left_out = [each.source for each in self._doubtful if each.source is not source]
        self._left_out.update((id(each), each) for each in left_out)
        self._doubtful = []
        self._credit(of_source[0].samples if of_source else None)

    def _credit(self, samples: int | None) -> None:
        self._steps_with_batch += 1
        self._add_samples(samples)

    def _add_samples(self, samples: int | None) -> None:
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
        if self._doubtful:
            self._settle(None)
        taken = CountedSteps(self.unreported, self._samples)
        self._reported = self.steps
        self._samples = 0
        return taken


def _add_up(batches: Sequence[int | None]) -> int | None:
    known = [samples for samples in batches if samples is not None]
    return sum(known) if len(known) == len(batches) else None
