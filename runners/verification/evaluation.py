"""Compares the sums and counts of a run's evaluation with those of a plain process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from distrain.models.data import length
from distrain.runners import formatting
from distrain.runners.config.plan import share
from distrain.runners.protocol.events import Evaluation
from distrain.runners.training.tap import Tensors
from distrain.runners.verification.reference import Metrics, PlainProcess
from distrain.runners.verification.result import VerificationCheck
from distrain.runners.verification.tolerance import FACTOR, FLOOR

BATCH = 64  # samples of the variant whose rounding differs, on GPUs
STATE_TOLERANCE = 1e-5  # relative; many metrics keep sums in fp32, which each rank rounds
DERIVED_TOLERANCE = 1e-9  # relative; from the means of the run

States = Mapping[str, tuple[Tensors, Tensors]]
"""Weights and buffers that a wrong evaluation may have used, by their name."""


def compare_evaluation(
    process: PlainProcess,
    evaluation: Evaluation,
    others: States,
    *,
    counts_only: bool,
    of_ranks: str = "",
) -> VerificationCheck:
    """Check that the run evaluated each sample once, in evaluation mode, with these weights.

    `process` has the weights and buffers of rank 0 at the end of the run. `of_ranks` says which
    rank evaluated others, if one has: the cause of a difference.
    """
    problem = next(_find_problems(process, evaluation, others, counts_only, of_ranks), "")
    return VerificationCheck(
        what="evaluations", step=evaluation.step, passed=not problem, detail=problem
    )


def _find_problems(
    process: PlainProcess,
    evaluation: Evaluation,
    others: States,
    counts_only: bool,
    of_ranks: str,
) -> Iterator[str]:
    assert process.task.eval is not None
    samples = length(process.task.eval)
    if evaluation.samples != samples:
        yield _describe_count("samples", evaluation.samples, samples)
    pieces = _pieces_of_ranks(process, samples)
    expected = process.evaluate(pieces)
    for name, metrics in expected.items():
        count = evaluation.metrics[name].count if name in evaluation.metrics else 0
        if count != metrics.count:
            yield _describe_count(name, count, metrics.count)
    if counts_only:
        return
    limits = _limits(process, expected, samples)
    totals = {name: evaluation.metrics[name].total for name in expected}
    for name, metrics in expected.items():
        total = totals[name]
        actual = math.nan if total is None else total
        is_equal = abs(actual - metrics.total) <= limits[name]
        if not (is_equal or (total is None and not math.isfinite(metrics.total))):
            cause = f": {of_ranks}" if of_ranks else ""
            cause = cause or _find_cause(process, evaluation, pieces, limits, others)
            kind = "" if metrics.is_of_state else "the sum of "
            yield (
                f"{kind}{name} is {actual:.9g}, and {metrics.total:.9g} in the plain process{cause}"
            )
    yield from _find_wrong_derived(process, evaluation, set(expected))


def _find_wrong_derived(
    process: PlainProcess, evaluation: Evaluation, sums: set[str]
) -> Iterator[str]:
    """Yield the values of metrics other than sums that do not follow from the means of the run."""
    derived = set(evaluation.metrics) - sums
    means = {name: metric.value for name, metric in evaluation.metrics.items() if name in sums}
    known = {name: value for name, value in means.items() if value is not None}
    values = process.task.derived(known) if len(known) == len(means) else {}
    for name in derived | set(values):
        found = evaluation.metrics[name].value if name in evaluation.metrics else None
        wanted = float(values[name]) if name in values else None
        if found != wanted and not (
            found is not None
            and wanted is not None
            and math.isclose(found, wanted, rel_tol=DERIVED_TOLERANCE)
        ):
            yield f"{name} is {found}, and {wanted} follows from the means"


def _pieces_of_ranks(process: PlainProcess, samples: int) -> list[range]:
    """Return the batches of all ranks, as samples of the evaluation set."""
    size = process.config.eval.batch_size or process.plan.micro_batch
    pieces = []
    start = 0
    for count in share(samples, process.plan.world_size):
        stop = start + count
        pieces += [range(at, min(at + size, stop)) for at in range(start, stop, size)]
        start = stop
    return pieces


def _limits(
    process: PlainProcess, expected: Mapping[str, Metrics], samples: int
) -> dict[str, float]:
    """Return how far each sum may be from the expected one.

    A CPU computes the same batch in the same way, but states are merged in another way. On GPUs a
    sum may be as far as that of other batches, or a count by one sample between two equal answers.
    """
    limits = {
        name: (STATE_TOLERANCE if metrics.is_of_state else FLOOR) * metrics.magnitude
        for name, metrics in expected.items()
    }
    if process.device.type != "cpu":
        pieces = [range(at, min(at + BATCH, samples)) for at in range(0, samples, BATCH)]
        for name, metrics in process.evaluate(pieces).items():
            one = 1 / samples if metrics.is_of_state else 1.0
            limits[name] += FACTOR * abs(metrics.total - expected[name].total) + one
    return limits


def _find_cause(
    process: PlainProcess,
    evaluation: Evaluation,
    pieces: list[range],
    limits: Mapping[str, float],
    others: States,
) -> str:
    """Return what the evaluation did instead, if one of a few mistakes gives its sums."""

    def explains(found: Mapping[str, Metrics]) -> bool:
        totals = {name: evaluation.metrics[name].total for name in found}
        return all(
            total is not None and abs(total - found[name].total) <= limits[name]
            for name, total in totals.items()
        )

    weights, buffers = process.state()
    in_training = process.evaluate(pieces, training=True)
    process.load(weights, buffers)
    cause = ", which fits an evaluation in training mode" if explains(in_training) else ""
    for name, (other_weights, other_buffers) in others.items():
        if not cause:
            process.load(other_weights, other_buffers)
            if explains(process.evaluate(pieces)):
                cause = f", which fits the weights {name}"
    process.load(weights, buffers)
    return cause


def _describe_count(name: str, actual: int, expected: int) -> str:
    problem = "are evaluated more than once" if actual > expected else "are left out"
    numbers = f"{formatting.count(actual)} evaluated, {formatting.count(expected)} expected"
    return f"{name}: {numbers}: some {problem}"
