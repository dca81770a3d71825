"""The planted bugs: with which config each shows, and what verification must name first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Bug(NamedTuple):
    """`what` and `step` are those of the first check that must fail; None: at any step."""

    changes: Mapping[str, Any] = MappingProxyType({})
    what: str = "gradients"
    step: int | None = 1
    sentence: str = ""  # a part of it


CLIPPED = {"train.clip_norm": 0.1}
ACCUMULATING = {"train.accumulate": 2}
NORMED = {"model.name": "planted_late:normed"}
ROUTED = {"model.name": "planted_late:routed", "train.weight_decay": 0.1}
EVALUATION = Bug(what="evaluations", step=None)

REDUCTION = {
    "NothingAveraged": Bug(),
    "ResultDiscarded": Bug(),
    "Summed": Bug(),
    "Unweighted": Bug(step=2),
    "NotBroadcast": Bug(what="initial weights", step=0),
    "AnotherSeed": Bug(what="initial weights", step=0),
    "AroundTheWrapper": Bug(),
    "OneBucketInHalf": Bug(),
    "ScaledTwice": Bug(ACCUMULATING),
    "UnscaledTwice": Bug({"precision": "fp16"}),
    "LastForgotten": Bug(),
    "BiasesForgotten": Bug(),
    "OneElement": Bug(),
    "Noise": Bug(),
    "LastBucketLost": Bug(),
    "Negated": Bug(),
    "Swapped": Bug(),
    "Delayed": Bug(step=2),
    "NotZeroed": Bug(step=2),
    "InBfloat16": Bug(),
    "ReducedTwice": Bug(),
    "FirstRankOnly": Bug(),
    "LastRankLost": Bug(),
    "Maximum": Bug(),
    "DividedTwice": Bug(),
    "OneTooMany": Bug(),
    "ClippedApart": Bug({"train.clip_norm": 0.05}),
    "EqualMicroBatches": Bug(ACCUMULATING, step=2),
    "LastMicroBatchOnly": Bug(ACCUMULATING),
    "SyncedEachTime": Bug(ACCUMULATING),
    "OneRankTwice": Bug(),
    "WeightsAveraged": Bug({"train.optimizer": "adam", "train.lr": 1e-3}),
}
LATE = {
    "NotReducedLater": Bug(what="weights of all ranks", step=4),
    "LateDrift": Bug(what="weights between steps", step=4),
    "FrozenLater": Bug(what="weights", step=None),
    "DoubledRate": Bug(what="learning rates", sentence="the optimizer has 0.2, the schedule 0.1"),
    "ConstantRate": Bug({"train.schedule": "cosine"}, what="learning rates", step=2),
    "DoubledUpdate": Bug(
        {"train.optimizer": "adam", "train.lr": 1e-4},
        what="weights",
        sentence="moves 2 times as far",
    ),
    "MomentumReset": Bug(
        {"train.momentum": 0.9},
        what="weights between steps",
        step=2,
        sentence="the optimizer of rank 0 has another state than after step 1",
    ),
    "EvaluatesOldWeights": EVALUATION._replace(sentence="which fits the weights at the start"),
    "EvaluatesInTraining": EVALUATION._replace(
        changes=NORMED, sentence="which fits an evaluation in training mode"
    ),
    "EvaluatesNotAveraged": EVALUATION._replace(
        changes={"train.ema": 0.9}, sentence="the weights of the last step, which are not averaged"
    ),
    "AveragesOnLeader": EVALUATION._replace(
        changes={"train.swa_share": 0.6, "train.lr": 0.3},
        sentence="in the plain process: rank 1 evaluated other weights than rank 0",
    ),
    "AveragesLate": EVALUATION._replace(
        changes={"train.swa_share": 0.6, "train.lr": 0.3},
        sentence="which fits the weights of an average that begins a step late",
    ),
    "OldStatistics": EVALUATION._replace(
        changes={**NORMED, "train.swa_share": 0.6, "train.lr": 0.3},
        sentence="the average, whose running statistics",
    ),
    "OwnBuffers": EVALUATION._replace(
        changes=NORMED, sentence="rank 1 evaluated other buffers than rank 0"
    ),
    "ZerosForUnused": Bug(ROUTED, what="weights", step=None, sentence="its gradient is zero"),
    "MeanOfUsers": Bug(ROUTED, step=None),
    "UnequalBuffers": Bug(
        NORMED, what="initial buffers", step=0, sentence="the ranks start from unequal states"
    ),
    "UnequalMomenta": Bug(
        {"train.momentum": 0.9},
        what="initial states of the optimizer",
        step=0,
        sentence="the optimizer of rank 1 starts from another state",
    ),
}
TASKS = {
    "RepeatsSamples": EVALUATION._replace(sentence="some are evaluated more than once"),
    "SummedLoss": Bug(what="task", step=0, sentence="returns a sum: the loss of 24 samples"),
    "Masked": Bug(what="task", step=0, sentence="such as a mean over tokens without padding"),
    "WrongWeights": Bug(what="task", step=0, sentence="are not those of the mean that loss()"),
    "LargestCounts": Bug(what="task", step=0, sentence="the state of confidence that metrics()"),
    "MeanCount": Bug(what="task", step=0, sentence="the count of loss over 24 samples is 1"),
}
BUGS = REDUCTION | LATE | TASKS


def changes_of(name: str) -> dict[str, Any]:
    """Return the changes of a config that plant the bug."""
    if name in TASKS:
        return {"task.name": f"planted_late:{name}", **TASKS[name].changes}
    module = "planted" if name in REDUCTION else "planted_late"
    return {"strategy": f"{module}:{name}", **BUGS[name].changes}
