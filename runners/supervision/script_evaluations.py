"""Evaluations of a script: the shares of all ranks become one, without a collective."""

from __future__ import annotations

import math

from distrain.runners import formatting
from distrain.runners.protocol.events import Evaluation, Metric, RankEvaluation
from distrain.runners.supervision.evidence import Evidence


class ScriptEvaluations:
    """Collects the shares of all ranks; those with the same number belong together."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._shares: dict[int, dict[int, RankEvaluation]] = {}
        self._has_explained = False

    def add(self, share: RankEvaluation) -> Evaluation | None:
        """Return the evaluation once all ranks have sent their share of it.

        One whose means are reduced already is complete with rank 0's.
        """
        if share.reduced:
            return _merge([share]) if share.rank == 0 else None
        shares = self._shares.setdefault(share.number, {})
        shares[share.rank] = share
        if len(shares) < self._evidence.world_size:
            return None
        del self._shares[share.number]
        return _merge([shares[rank] for rank in sorted(shares)])

    def explain_missing(self) -> str:
        """Return why an evaluation is not recorded that ranks have passed without sending a share.

        Only the first time, else an empty string.
        """
        if self._has_explained or not self._shares:
            return ""
        number, shares = min(self._shares.items())
        evidence, step = self._evidence, max(share.step for share in shares.values())
        is_over = len(self._shares) > 1  # a later one has begun
        missing = sorted({*range(evidence.world_size)} - shares.keys())
        for rank in missing:
            has_passed = is_over and evidence.steps.get(rank, 0) > step
            if not (has_passed or rank in evidence.finished):
                return ""
        self._has_explained = True
        verb = "has" if len(missing) == 1 else "have"
        return (
            f"evaluation {number} is not recorded: {formatting.ranks(missing)} {verb} not called "
            "distrain.log_eval(). Call it on every rank, or with reduced=True if the values of "
            "rank 0 are those of all ranks"
        )

    def reset(self) -> None:
        """Forget the shares of an earlier attempt."""
        self._shares.clear()


def _merge(shares: list[RankEvaluation]) -> Evaluation:
    """Return the means over all samples; a metric that not every rank has is left out.

    It is None if that of a rank is. The means of a rank without samples are not counted: they are
    NaN, or there are none.
    """
    counted = [share for share in shares if share.samples] or shares
    last = counted[-1]
    names = [name for name in last.metrics if all(name in share.metrics for share in counted)]
    samples = sum(share.samples for share in shares)
    return Evaluation(
        time=max(share.time for share in shares),
        epoch=0,
        step=max(share.step for share in shares),
        samples=samples,
        seconds=0.0,
        metrics={
            name: Metric.of(sum(_total(share, name) for share in counted), samples)
            for name in names
        },
    )


def _total(share: RankEvaluation, name: str) -> float:
    mean = share.metrics[name]
    return math.nan if mean is None else mean * share.samples
