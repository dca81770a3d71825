"""Checks of the task alone: is its loss a mean, and are its metrics sums?

Neither launcher nor strategy plays a part: one process computes the same samples in one batch and
in several, in evaluation mode, in which neither dropout nor BatchNorm matters, and in fp64 if the
task can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from distrain.models.data import length
from distrain.models.places import place_of
from distrain.runners.training.data_check import content_of, leaves_of
from distrain.runners.training.evaluation import in_evaluation_mode
from distrain.runners.training.random_state import seed_generators
from distrain.runners.training.weights import has_weights, weight_of
from distrain.runners.verification.reference import Metrics, PlainProcess
from distrain.runners.verification.result import TASK, VerificationCheck

BLOCK = 8  # samples in each of three blocks
TOLERANCE = {True: 2e-6, False: 1e-3}  # relative; by whether the process is exact
STATE_TOLERANCE = 1e-4  # relative; many metrics compute in fp32
CUTS = {"A": (0, 1), "B": (1, 2), "C": (2, 3), "AB": (0, 2), "BC": (1, 3), "ABC": (0, 3)}

MEAN_RULE = (
    "The loss of a batch must be the mean over its samples, because steps, ranks and micro-batches "
    "are weighted by their samples"
)


def check_task(
    process: PlainProcess,
    *,
    has_plain_loss: bool,
    has_plain_metrics: bool,
    has_random_samples: bool,
) -> Iterator[VerificationCheck]:
    """Check the loss and the metrics of the task, unless they draw numbers or keep state.

    Nothing is known of the loss where random samples of a batch depend on others, such as those
    that `collate` mixes.
    """
    problems = []
    with in_evaluation_mode(process.model):
        if has_plain_loss:
            problems.append(_problem_of_loss(process, has_random_samples))
        if has_plain_metrics:
            problems.append(_problem_of_metrics(process))
    for problem in problems:
        yield VerificationCheck(what=TASK, step=0, passed=not problem, detail=problem)


# --- the loss -------------------------------------------------------------------------------------


def _problem_of_loss(process: PlainProcess, has_random_samples: bool) -> str:
    """Return why the loss is not a mean over samples; empty if it is."""
    size = min(BLOCK, process.epochs.samples // 3)
    if not size:
        return ""
    batches = _training_batches(process, size)
    if has_random_samples and not _are_the_same_samples(batches):
        return ""
    losses = {name: float(process.loss(batch).detach()) for name, batch in batches.items()}
    if not all(map(math.isfinite, losses.values())):
        return ""  # the run reports it
    weights = {name: float(size * (cut[1] - cut[0])) for name, cut in CUTS.items()}
    if has_weights(process.task):
        weights = {name: weight_of(process.task, batch) for name, batch in batches.items()}
        parts = sum(weights[name] for name in "ABC")
        if not _is_close(weights["ABC"], parts, parts, process.exact):
            return (
                f"{place_of(process.task.weight)} must return a sum: the weight of {3 * size} "
                f"samples is {weights['ABC']:.6g}, and those of their parts add up to {parts:.6g}"
            )
    is_mean = _is_mean(losses, weights, TOLERANCE[process.exact])
    return "" if is_mean else _describe_loss(process, losses, 3 * size)


def _describe_loss(process: PlainProcess, losses: dict[str, float], count: int) -> str:
    """Return how the loss of `count` samples, which is not their mean, depends on its parts."""
    place = place_of(process.task.loss)
    whole, parts = losses["ABC"], sum(losses[name] for name in "ABC")
    found = f"the loss of {count} samples is {whole:.6g}"
    if _is_close(whole, parts, parts, process.exact):
        return (
            f"{place} returns a sum: {found}, as much as those of its parts together. "
            f'Use reduction="mean". {MEAN_RULE}'
        )
    if has_weights(process.task):
        return (
            f"the weights of {place_of(process.task.weight)} are not those of the mean that "
            f"{place} returns: {found}, and its parts with these weights give another mean"
        )
    found += f", and the mean of its parts' losses {parts / 3:.6g}"
    if _is_weighted_mean(losses, process.exact):
        return (
            f"{place} returns a mean in which samples have different weights, such as a mean over "
            f"tokens without padding: {found}. Let the task's method weight(batch) return the sum "
            "of these weights, such as the number of tokens"
        )
    return (
        f"the loss of {place} depends on which samples are in one batch: {found}. {MEAN_RULE}; a "
        "loss that compares samples with each other gives another result on several ranks"
    )


def _training_batches(process: PlainProcess, size: int) -> dict[str, Any]:
    """Return the first blocks of training samples, alone and together."""
    batches = {}
    for names in (("A", "B", "C"), ("AB",), ("A", "BC"), ("ABC",)):
        seed_generators(0)  # for data that draws its augmentation from the global generators
        sizes = [size * (CUTS[name][1] - CUTS[name][0]) for name in names]
        for name, (part,) in zip(names, process.steps([sizes], 1, 1), strict=True):
            batches[name] = part.batch
    return batches


def _are_the_same_samples(batches: dict[str, Any]) -> bool:
    """Return whether the batch of all samples is made of its parts, tensor by tensor."""
    whole, *parts = (
        [content_of(leaf) for leaf in leaves_of(batches[name])] for name in ("ABC", "A", "B", "C")
    )
    return whole == [b"".join(pieces) for pieces in zip(*parts, strict=False)]


def _is_mean(losses: dict[str, float], weights: dict[str, float], tolerance: float) -> bool:
    """Return whether the loss of each union is the weighted mean of its parts' losses."""
    for union in ("AB", "BC", "ABC"):
        total = sum(weights[name] for name in union)
        terms = [losses[name] * weights[name] / total for name in union]
        scale = sum(map(abs, terms)) + abs(losses[union])
        if abs(losses[union] - sum(terms)) > tolerance * scale:
            return False
    return True


def _is_weighted_mean(losses: dict[str, float], exact: bool) -> bool:
    """Return whether one weight for each block explains all losses.

    The pairs give the ratios of the weights; the loss of all three must follow from them.
    """
    a, b, c = (losses[name] for name in "ABC")
    pairs = (a - losses["AB"], losses["AB"] - b, b - losses["BC"], losses["BC"] - c)
    scale = abs(a) + abs(b) + abs(c)
    if any(abs(each) < TOLERANCE[exact] * scale for each in pairs):
        return False  # too close to each other to tell
    second = pairs[0] / pairs[1]
    third = second * pairs[2] / pairs[3]
    if second <= 0 or third <= 0:
        return False
    predicted = (a + second * b + third * c) / (1 + second + third)
    return abs(predicted - losses["ABC"]) <= 100 * TOLERANCE[exact] * scale


def _is_close(value: float, other: float, scale: float, exact: bool) -> bool:
    return abs(value - other) <= TOLERANCE[exact] * abs(scale)


# --- the metrics ----------------------------------------------------------------------------------


def _problem_of_metrics(process: PlainProcess) -> str:
    """Return which metric is not a sum; empty if all are."""
    if process.task.eval is None:
        return ""
    size = min(BLOCK, length(process.task.eval) // 3)
    if not size:
        return ""
    blocks: list[Sequence[int]] = [range(start, start + size) for start in (0, size, 2 * size)]
    parts = process.evaluate(blocks)
    whole = process.evaluate([range(3 * size)])
    for name, together in whole.items():
        apart = parts.get(name)
        if apart is None or not (math.isfinite(together.total) and math.isfinite(apart.total)):
            continue
        place = place_of(process.task.metrics)
        if together.is_of_state:
            problem = _problem_of_state(name, together, apart, 3 * size, place)
        elif together.count == 1 and all(
            process.evaluate([block])[name] == together for block in blocks
        ):
            problem = ""  # the same for each batch, such as a temperature: its mean is itself
        else:
            problem = _problem_of_sum(name, together, apart, 3 * size, place, process.exact)
        if problem:
            return problem
    return ""


def _problem_of_state(
    name: str, together: Metrics, apart: Metrics, samples: int, place: str
) -> str:
    limit = STATE_TOLERANCE * max(abs(together.total), abs(apart.total))
    if abs(together.total - apart.total) <= limit:
        return ""
    return (
        f"the state of {name} that {place} returns is not merged right: {name} is "
        f"{together.total:.6g} over {samples} samples in one batch, and {apart.total:.6g} over the "
        "same samples in three"
    )


def _problem_of_sum(
    name: str, together: Metrics, apart: Metrics, samples: int, place: str, exact: bool
) -> str:
    is_sum = _is_close(together.total, apart.total, apart.magnitude, exact)
    if is_sum and together.count == apart.count:
        return ""
    wrong, right = ("count", "counts") if is_sum else ("sum", "sums")
    values = (together.count, apart.count) if is_sum else (together.total, apart.total)
    hint = ""
    if not is_sum and _is_close(3 * together.total, apart.total, apart.magnitude, False):
        hint = ", as if it were a mean"
    return (
        f"{place} must return sums and counts: the {wrong} of {name} over {samples} samples "
        f"is {values[0]:.6g}, and the {right} of its parts add up to {values[1]:.6g}{hint}"
    )
