"""Given what ranks report of a script, when it shows a mistake of all of them, then it is named."""

from __future__ import annotations

from typing import Any

import pytest

from distrain.runners.protocol.events import Finished, RankFacts
from distrain.runners.supervision.evidence import Evidence
from distrain.runners.supervision.script_checks import ScriptChecks


def facts(rank: int, **given: Any) -> RankFacts:
    return RankFacts(**({"time": 0.0, "rank": rank, "step": 10 + rank} | given))


def found(*ranks: dict[str, Any], hosts: tuple[str, ...] = ()) -> list[str]:
    """Return what is found once each rank has sent these facts, twice."""
    checks = ScriptChecks(Evidence(world_size=len(ranks)))
    return [
        text
        for _ in range(2)
        for rank, given in enumerate(ranks)
        for text in checks.add(facts(rank, **given), hosts[rank] if hosts else "")
    ]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"has_process_group": False}, "2 independent processes: each trains a model of its own"),
    ({"uses_process_group": False}, "the process group was not used in the first 10 steps"),
    ({"batches": [1, 2, 1]}, "all ranks read the same samples: their first 3 batches are equal"),
    ({"saved": ["/a/own.pt", "/a/model.pt"]}, "ranks 0–1 write the same file, /a/"),
]


@pytest.mark.parametrize(("given", "start"), MISTAKES)
def test_a_mistake_of_all_ranks_is_named_once(given: dict[str, Any], start: str) -> None:
    (text,) = found(given, given)
    assert text.startswith(start)


@pytest.mark.parametrize(("given", "_"), MISTAKES)
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"has_process_group": True, "uses_process_group": True, "batches": [1, 2, 3]},
        {"saved": ["/a/rank-1.pt"]},
    ],
)
def test_what_only_one_rank_does_is_no_mistake(
    given: dict[str, Any], _: str, other: dict[str, Any]
) -> None:
    assert not found(given, other)


def test_nothing_is_said_of_a_single_rank_or_while_ranks_are_missing() -> None:
    everything = {name: value for given, _ in MISTAKES for name, value in given.items()}
    assert not found(everything)
    checks = ScriptChecks(Evidence(world_size=2))
    assert not [*checks.add(facts(1, **everything))]
    assert len([*checks.add(facts(0, **everything))]) == len(MISTAKES)


def test_ranks_of_the_process_group_that_are_not_recorded_are_named() -> None:
    (text,) = found({"group_size": 4})
    assert text.startswith("the process group has 4 ranks, of which 1 is recorded: samples, rates")
    (text,) = found({"group_size": 4}, {})
    assert text.startswith("the process group has 4 ranks, of which 2 are recorded")
    assert not found({"group_size": 2}, {})  # the program has started them, and both have joined


def test_batches_that_are_all_alike_tell_nothing() -> None:
    assert not found({"batches": [7, 7, 7]}, {"batches": [7, 7, 7]})


def test_files_of_different_hosts_are_different_files() -> None:
    local = {"saved": ["/tmp/model.pt"]}
    assert not found(local, local, hosts=("a", "b"))
    (text,) = found(local, local, local, hosts=("a", "b", "b"))
    assert text.startswith("ranks 1–2 write")


@pytest.mark.parametrize(
    ("idle", "stopped", "is_found"),
    [((True, True), False, True), ((True, False), False, False), ((True, True), True, False)],
)
def test_a_program_that_never_stepped_is_told_from_one_that_was_stopped(
    idle: tuple[bool, bool], stopped: bool, is_found: bool
) -> None:
    evidence = Evidence(world_size=2)
    checks = ScriptChecks(evidence)
    for rank, has_idle_optimizer in enumerate(idle):
        assert not [*checks.add(facts(rank, step=0, has_idle_optimizer=has_idle_optimizer))]
        evidence.finished[rank] = Finished(time=0.0, rank=rank, step=0, stopped=stopped)
    assert checks.ended_without_step is is_found


def test_a_new_attempt_begins_without_the_facts_of_the_last() -> None:
    checks = ScriptChecks(Evidence(world_size=2))
    given = {"has_process_group": False}
    assert not [*checks.add(facts(0, **given))]
    checks.reset()
    assert not [*checks.add(facts(1, **given))]
