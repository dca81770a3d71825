"""What is noted of a script's training loop, until it is replayed once per window.

Noting an event must be cheap, as it happens several times in a step that may take less than a
millisecond. So hooks and calls only append to a list, and steps of the usual form are added up: a
list that grows in each step is written to memory that no cache holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Noted = tuple[int, Any, Any, Any]

(
    BATCH,
    EVALUATION,
    END,
    LEFT,
    BACKWARD,
    OPTIMIZER_STEP,
    OWN_STEP,
    ENTER,
    LEAVE,
    USUAL_STEPS,
) = range(10)
_NOTHING = -1


class UsualSteps(NamedTuple):
    """Sums over steps that each consist of a batch, a backward pass and a step of the optimizer.

    `wait`, `forward`, `backward` and `between` (one step and the next) are seconds. What is left of
    them is the optimizer's.
    """

    steps: int
    source: object
    samples: int
    wait: float
    forward: float
    backward: float
    between: float
    rate: Any


class LoopEvents:
    """Events of a training loop, in their order: `note((kind, begin, end, extra))`.

    | kind | extra |
    | --- | --- |
    | BATCH: a wait for training data | its source, samples |
    | EVALUATION: a batch that is not trained with | its source or None, samples |
    | END: the source of an evaluation, or with a `begin` of training data, has ended | the source |
    | LEFT: the program has dropped a source, and with an `end` its training loop | the source |
    | BACKWARD: a backward pass | None |
    | OPTIMIZER_STEP: ends at `end` | how many steps count, the optimizer's learning rate and id |
    | OWN_STEP: ends at `end` | its kind, and samples |
    | ENTER, LEAVE: a phase that the script names, at `begin` | the phase |
    | USUAL_STEPS: several steps | `UsualSteps` |

    Steps are added up if `begin_usual` was called, until an event comes that is not the next one of
    such a step.

    Other threads may note events too. Those of a usual step are added up without a call of a
    function, because CPython changes threads and handles signals only at calls and in loops.
    """

    __slots__ = (
        "_backward",
        "_backward_begin",
        "_backward_end",
        "_begin",
        "_between",
        "_count",
        "_end",
        "_expected",
        "_forward",
        "_rate",
        "_samples",
        "_source",
        "_wait",
        "_wait_begin",
        "_wait_end",
        "_wait_samples",
        "note",
        "others",
    )

    def __init__(self) -> None:
        self.others: list[Noted] = []  # always this list
        self.note = self.others.append
        self.begin_usual(None)
        self._expected = _NOTHING

    def begin_usual(self, source: object) -> None:
        """Add up the steps that follow, if they are trained with batches of this source."""
        self._expected = BATCH
        self._source = source
        self._begin = self._end = 0.0
        self._count = self._samples = 0
        self._wait = self._forward = self._backward = self._between = 0.0

    def note_batch(self, begin: Any, end: Any, source: object, samples: int | None) -> None:
        """Note a wait for training data."""
        is_expected = self._expected == BATCH and not self.others
        if is_expected and source is self._source and samples is not None:
            self._wait_begin = begin
            self._wait_end = end
            self._wait_samples = samples
            self._expected = BACKWARD
        else:
            self._end_usual()
            self.note((BATCH, begin, end, (source, samples)))

    def note_backward(self, begin: Any, end: Any) -> None:
        """Note a backward pass."""
        if self._expected == BACKWARD and not self.others:
            self._backward_begin = begin
            self._backward_end = end
            self._expected = OPTIMIZER_STEP
        else:
            self._end_usual()
            self.note((BACKWARD, begin, end, None))

    def note_step(self, end: Any, rate: Any) -> None:
        """Note a step of the optimizer that counts, with its learning rate."""
        if self._expected != OPTIMIZER_STEP or self.others:
            self._end_usual()
            self.note((OPTIMIZER_STEP, None, end, (1, rate, 0)))
            return
        if self._count:
            self._between += self._wait_begin - self._end
        else:
            self._begin = self._wait_begin
        self._wait += self._wait_end - self._wait_begin
        self._forward += self._backward_begin - self._wait_end
        self._backward += self._backward_end - self._backward_begin
        self._end = end
        self._rate = rate
        self._samples += self._wait_samples
        self._count += 1
        self._expected = BATCH

    def take(self) -> list[Noted]:
        """Return what was noted since the last call."""
        self._end_usual()
        taken = self.others[:]
        del self.others[: len(taken)]  # no more: other threads may append to it
        return taken

    def _end_usual(self) -> None:
        """Add no more steps up, and note what there was of them before everything else."""
        expected, self._expected = self._expected, _NOTHING
        if expected == _NOTHING:
            return
        noted: list[Noted] = []
        if self._count:
            steps = UsualSteps(
                self._count,
                self._source,
                self._samples,
                self._wait,
                self._forward,
                self._backward,
                self._between,
                self._rate,
            )
            noted.append((USUAL_STEPS, self._begin, self._end, steps))
        if expected != BATCH:
            extra = (self._source, self._wait_samples)
            noted.append((BATCH, self._wait_begin, self._wait_end, extra))
        if expected == OPTIMIZER_STEP:
            noted.append((BACKWARD, self._backward_begin, self._backward_end, None))
        self.others[:0] = noted
