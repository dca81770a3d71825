"""Given the events of a script's loop in order, what is a step and which samples belong to it.

In the table a letter is a source of batches: `t4` is a batch of 4 samples, `t?` one whose samples
are unknown, `e9!` one of data that does not train, `t.` the end of the source, `t-` that the
program drops it. `b` is a backward pass, `S` a step of the optimizer, `S3` the third in a row of
another one after two `O`, which count only then. `C` is a call of `distrain.step()`, `C8` one with
samples, `B` the end of a batch of `distrain.track()`, and `I` the begin of another stage.
"""

from __future__ import annotations

import pytest

from distrain.runners.instrumentation.step_counter import BATCHES, CALLS, OPTIMIZER, StepCounter


def play(events: str, counter: StepCounter) -> None:
    loaders: dict[str, object] = {}
    for name, *rest in events.split():
        value = "".join(rest)
        if name == "b":
            counter.add_backward()
        elif name == "S":
            counter.finish_step(OPTIMIZER, times=int(value or 1))
        elif name == "O":
            counter.add_other_step()
        elif name == "B":
            counter.finish_step(BATCHES)
        elif name == "I":
            counter.begin_stage()
        elif name == "C":
            counter.finish_step(CALLS, int(value) if value else None)
        elif value in (".", "-"):
            counter.end_source(loaders.pop(name), was_read_to_end=value == ".")
        else:
            loader = loaders.setdefault(name, object())
            samples = value.removesuffix("!")
            counter.add_batch(
                loader, None if samples == "?" else int(samples), may_train=samples == value
            )


@pytest.mark.parametrize(
    ("script", "events", "steps", "samples"),
    [
        ("a plain loop", "t4 S t4 S t2 S t.", 3, 10),
        ("accumulation", "t4 t4 S t4 t4 S t.", 2, 16),
        ("accumulation, a remainder", "t4 t4 S t4 t. t4 t4 S t4 t.", 2, 16),
        ("accumulation across epochs", "t4 b t4 b S t4 b t. u4 b S u4 b u4 b S u.", 3, 24),
        ("accumulation, a remainder that counts", "t4 b t4 b S t4 b t. u4 b u4 b S u4 b u.", 2, 20),
        ("accumulation over a whole epoch", "t4 b t4 b t4 b S t4 b t. u4 b u. v4 b S v.", 2, 24),
        ("accumulation over several epochs", "t4 b t. u4 b S u4 b u. v4 b S", 2, 16),
        ("accumulation of more batches", "t4 b S t4 b t4 b t. u4 b S u4 b u4 b u4 b S", 3, 28),
        ("accumulation across epochs, an evaluation", "t4 b S t4 b t. e9! e9! e. u4 b S", 2, 12),
        ("accumulation across epochs, one batch ahead", "t4 b S t4 b t4 t. u4 b S", 2, 12),
        ("accumulation across epochs, other steps", "t4 b S t4 b O t. u4 b O b S", 2, 12),
        ("backward passes before training", "t4 b t- u4 b S u4 b S", 2, 8),
        ("another batch size after a failure", "t8 b t- u4 b S u4 b S u.", 2, 8),
        ("weights by backward passes", "t4 b S t4 b S t. f4 b f4 b f. u4 b S u4 b S", 4, 16),
        ("two optimizers in turn", "t4 b S t4 b S t. u4 b O u4 b O u. v4 b S v4 b S", 4, 16),
        ("a second stage, backward passes", "t4 b S t4 b O t4 b O t. u4 b O u4 b S4 u.", 5, 20),
        ("an evaluation with backward passes", "t4 b S t4 b S t. e9! b e9! b e. u4 b S", 3, 12),
        ("an evaluation before the backward pass", "t4 b S t4 e9! e. b t4 b S", 2, 12),
        ("one step per epoch", "t4 t4 t. S t4 t4 t. S", 2, 16),
        ("evaluation between epochs", "t4 S t4 S t. e9 e9 e. t4 S t4 S t. e9 e9 e.", 4, 16),
        ("evaluation within an epoch", "t4 S e9 e9 e. t4 S t.", 2, 8),
        ("evaluation before the step of a batch", "t4 S t4 e9 e9 e. S", 2, 8),
        ("evaluation while gradients accumulate", "t4 e9 e. t4 S", 1, 8),
        ("evaluation that is left early", "t4 S e9 e- t4 S", 2, 8),
        ("a look at a batch before training", "t4 t- u4 S u4 S u.", 2, 8),
        ("next(iter(loader)) in each step", "t4 t- S u4 u- S v4 v- S", 3, 12),
        ("an infinite loader", "t4 S t4 S t4 S", 3, 12),
        ("an epoch that is left early", "t4 S t4 S t4 t- u4 S", 3, 12),
        ("batches drawn one step ahead", "t4 t4 S t4 S t4 S t. S", 4, 16),
        ("two loaders, one after the other", "t4 S t4 S t. u2 S u2 S u.", 4, 12),
        ("two loaders at once", "t4 u4 S t4 u4 S", 2, None),
        ("two loaders at once, read to their end", "t4 u4 t. u. S t4 u4 t. u. S", 2, None),
        ("two loaders at once, the second one now and then", "t4 u4 S t4 S t4 u4 S", 3, None),
        ("two loaders before one step", "t4 t4 t. u2 u2 u. S", 1, None),
        ("an iterator that is kept from before", "k4 t4 S t4 S t2 S t.", 3, 10),
        ("an iterator that is kept from before, step()", "k4 t4 C t4 C t2 C t.", 3, 10),
        ("an iterator that is kept from before, one step", "k4 t4 S t.", 1, None),
        ("a backward pass for each batch", "t4 b t4 b S t4 b t2 b S t.", 2, 14),
        ("two backward passes for each batch", "t4 b b S t4 b b S t.", 2, 8),
        ("one batch ahead, backward passes", "t4 t4 b S t4 b S t2 b S t. b S", 4, 14),
        ("one batch ahead, left early", "t4 t4 b S t4 b S t-", 2, 8),
        ("batches that are left out", "t4 t4 t4 b S t4 b S t.", 2, None),
        ("every second batch is left out", "t4 t4 b S t4 t4 b S t4 t4 b S t.", 3, None),
        ("an unknown batch", "t4 S t? S t4 S", 3, None),
        ("a cycle that keeps its batches", "t4 S t. S S S", 4, None),
        ("a second stage without a loader", "t4 S t4 S t4 S t4 S t. S S S", 7, None),
        ("a second stage over several epochs", "t4 S t4 O t4 O t. u4 O u4 S4 u.", 5, 20),
        ("a second stage, an evaluation", "t4 S t4 O e9 e9 e. t4 S2 t.", 3, 12),
        ("a second stage, an unknown batch", "t4 S t4 O t? O t. u4 S3 u.", 4, None),
        ("several steps for each batch", "t4 S S t4 S S t4 S S t.", 6, 12),
        ("another step at the end of each epoch", "t4 S t4 S t. S u4 S u4 S u. S", 6, 16),
        ("tensors without a loader", "S S S", 3, None),
        ("track alone", "t4 B t4 B t2 B t.", 3, 10),
        ("track and an optimizer", "t4 S t4 S t.", 2, 8),
        ("track, accumulation", "t4 B t4 B t4 S t4 t4 t4 S", 2, 24),
        ("step() after the optimizer", "t4 S C t4 S C t4 S C", 3, 12),
        ("step() with samples", "t4 C7 t4 C7", 2, 14),
        ("step() with samples, of batches without", "t? B t? C6 t? t? C6", 2, 12),
        ("step() with samples, not always", "C8 C C8", 3, None),
        ("step() with samples, first without", "C C8 C8", 3, None),
        ("step() with samples after an optimizer", "S C8 S C8", 2, 16),
        ("step() with samples, or those of its batch", "t4 C7 t4 C", 2, 11),
        ("step() after each second step of the optimizer", "t4 S t4 S C t4 S t4 S C", 2, 16),
        ("step() in a second stage", "t4 S t4 S t. I u4 S C4 u4 S C4 u4 S C4 u.", 5, 20),
        ("step() in a second stage, its batches", "t4 S t4 S t. I u4 S C u4 S C u.", 4, 16),
        ("step() in a second stage, another optimizer", "t4 S t4 S t. I u4 O C4 u4 O C4 u.", 4, 16),
    ],
)
def test_steps_and_samples(script: str, events: str, steps: int, samples: int | None) -> None:
    counter = StepCounter()
    play(events, counter)
    taken = counter.take()
    assert (taken.steps, counter.steps) == (steps, steps), script
    assert (taken.samples if counter.samples_are_known else None) == samples, script


def test_steps_that_were_reported_stay_until_there_are_more_of_the_kind_that_follows() -> None:
    counter = StepCounter()
    seen = []
    for events in ("t4 B t4 B t4 B", "t4 S t4 t4 S", "t4 S t4 S"):
        play(events, counter)
        seen.append((counter.take().steps, counter.steps))
    assert seen == [(3, 3), (0, 3), (1, 4)]


def test_calls_of_a_second_stage_count_after_the_reported_steps_of_the_first() -> None:
    counter = StepCounter()
    seen = []
    for events in ("t4 S t4 S t4 S t. I", "t4 S C4 t4 S C4", "t4 S C4"):
        play(events, counter)
        seen.append((*counter.take(), counter.is_behind))
    assert seen == [(3, 12, False), (2, 8, False), (1, 4, False)]
