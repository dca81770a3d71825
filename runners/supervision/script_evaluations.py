"""Evaluations of a script: the shares of all ranks become one, without a collective."""

from __future__ import annotations

from distrain.runners.protocol.events import Evaluation, Metric, RankEvaluation
from distrain.runners.supervision.evidence import Evidence


class ScriptEvaluations:
    """Collects the shares of all ranks; those with the same number belong together."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._shares: dict[int, dict[int, RankEvaluation]] = {}

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

    def reset(self) -> None:
        """Forget the shares of an earlier attempt."""
        self._shares.clear()


def _merge(shares: list[RankEvaluation]) -> Evaluation:
    """Return the means over all samples; a metric that not every rank has is left out."""
    last = shares[-1]
    names = [name for name in last.metrics if all(name in share.metrics for share in shares)]
    samples = sum(share.samples for share in shares)
    return Evaluation(
        time=max(share.time for share in shares),
        epoch=0,
        step=max(share.step for share in shares),
        samples=samples,
        seconds=0.0,
        metrics={
            name: Metric.of(sum(share.metrics[name] * share.samples for share in shares), samples)
            for name in names
        },
    )
