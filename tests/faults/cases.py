"""Which cases are tried: a pairwise covering set, repeats of the most frequent faults, and others.

The set covers every pair of values of two factors that can occur at all. It is chosen greedily,
which takes fewer lines than a library would take to be told the rules.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

TARGETS = ("rank", "loader", "launcher", "supervisor", "viewer", "script")
FAULTS = ("raises", "exits 0", "SIGTERM", "SIGKILL", "SIGSTOP 30 s", "SIGSTOP", "memory")
PHASES = ("start", "training", "evaluation", "checkpoint", "end")
LAUNCHERS = ("torchrun", "spawn", "horovod", "script")
SEED = 20261123
MOST = 80  # cases of the covering set
REPEATS = 20


class Case(NamedTuple):
    """A fault of a target in a phase of a run; `number` distinguishes repeats."""

    target: str
    fault: str
    phase: str
    launcher: str
    number: int = 0

    @property
    def id(self) -> str:
        words = (self.target, self.fault, self.phase, self.launcher, str(self.number))
        return "/".join(words).replace(" ", "-")

    @property
    def random(self) -> random.Random:
        """The source of this case's random moments: the same in every call."""
        return random.Random(f"{SEED} {self.id}")


def can_exist(case: Case) -> bool:
    """Return whether a case is possible.

    The rank of a script is the script. Loader processes end before their rank does, and start with
    its first batch.
    """
    if (case.target == "script") != (case.launcher == "script") and case.target in (
        "rank",
        "script",
    ):
        return False
    return not (case.target == "loader" and case.phase == "end")


def everything() -> Iterator[Case]:
    """Yield all cases that can exist."""
    for words in product(TARGETS, FAULTS, PHASES, LAUNCHERS):
        if can_exist(case := Case(*words)):
            yield case


def _pairs(case: Case) -> set[tuple[int, str, int, str]]:
    return {(i, case[i], j, case[j]) for i, j in combinations(range(4), 2)}  # type: ignore[misc]


def covering_set() -> list[Case]:
    """Return cases that cover all pairs of values that can occur, and more up to MOST.

    Those have another target, fault or phase than all before them.
    """
    possible = list(everything())
    random.Random(SEED).shuffle(possible)
    left = set().union(*map(_pairs, possible))
    chosen = []
    while left:
        best = max(possible, key=lambda case: len(left & _pairs(case)))
        chosen.append(best)
        left -= _pairs(best)
    seen = {case[:3] for case in chosen}
    for case in possible:
        if len(chosen) < MOST and case[:3] not in seen:
            seen.add(case[:3])
            chosen.append(case)
    return chosen


def repeats() -> list[Case]:
    """Return the cases that are tried REPEATS times each, with one launcher after another."""
    cases = []
    for target, fault in product(
        ("rank", "launcher", "supervisor"), ("SIGTERM", "SIGKILL", "SIGSTOP")
    ):
        launchers = LAUNCHERS[:3] if target == "rank" else LAUNCHERS
        for number in range(1, REPEATS + 1):
            launcher = launchers[number % len(launchers)]
            cases.append(Case(target, fault, "training", launcher, number))
    return cases


# Rank 0 is frozen while it writes, and the others wait for it.
WRITING = [Case("rank", "SIGSTOP", "checkpoint", launcher) for launcher in ("torchrun", "horovod")]
SLURM = [Case("rank", "SIGKILL", "training", "slurm")]
