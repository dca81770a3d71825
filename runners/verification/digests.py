"""Compares the digests that all ranks write of every step: which state changes when, and where."""

from __future__ import annotations

from pathlib import Path

from distrain.runners.training.tap_files import digests_file, evaluated_file
from distrain.runners.verification.result import VerificationCheck

BETWEEN_STEPS = "weights between steps"
OF_RANKS = "weights of all ranks"
OF_OPTIMIZERS = "initial states of the optimizer"


def find_unequal_states(folder: Path, ranks: int) -> dict[int, VerificationCheck]:
    """Return the first step at which ranks differ, or weights change outside of the update.

    Step 0 is the start. `folder` has the verification files.
    """
    rows = [digests_file(folder, rank).read_text().splitlines() for rank in range(ranks)]
    previous: list[list[str]] = []
    for step, lines in enumerate(zip(*rows, strict=True), 1):
        digests = [line.split()[1:] for line in lines]
        for rank in range(ranks):
            what, detail = _describe_difference(step, rank, digests, previous)
            if detail:
                at = 0 if what == OF_OPTIMIZERS else step
                return {at: VerificationCheck(what=what, step=at, passed=False, detail=detail)}
        previous = digests
    return {}


def find_other_evaluation(folder: Path, ranks: int) -> str:
    """Return which rank evaluated another model than rank 0, and whether its weights or buffers
    differ; empty if all have evaluated the same.
    """
    digests = [evaluated_file(folder, rank).read_text().split() for rank in range(ranks)]
    for kind, of_kind in zip(("weights", "buffers"), zip(*digests, strict=True), strict=True):
        for rank, digest in enumerate(of_kind):
            if digest != of_kind[0]:
                return f"rank {rank} evaluated other {kind} than rank 0"
    return ""


def _describe_difference(
    step: int, rank: int, digests: list[list[str]], previous: list[list[str]]
) -> tuple[str, str]:
    """Return what differs, and how; `digests` and `previous` have the trained weights and the
    optimizer before and after a step, and all weights after it, by rank.
    """
    before, state, _, _, model = digests[rank]
    if not previous and state != digests[0][1]:
        detail = f"the optimizer of rank {rank} starts from another state than that of rank 0"
        return OF_OPTIMIZERS, detail
    if previous and before != previous[rank][2]:
        return BETWEEN_STEPS, f"rank {rank} has other weights than after step {step - 1}"
    if previous and state != previous[rank][3]:
        detail = f"the optimizer of rank {rank} has another state than after step {step - 1}"
        return BETWEEN_STEPS, detail
    if model != digests[0][4]:
        return OF_RANKS, f"those of rank {rank} are not equal to those of rank 0"
    return "", ""
