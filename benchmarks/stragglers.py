"""Measure whether stragglers are found, in real runs with and without a delayed rank.

One rank is delayed by a fifth of the step in one phase. Targets: rank and phase are found in at
least 19 of 20 runs with a delay, and no rank in 20 runs without.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.report import Table, publish
from distrain import Record, RunConfig, launch
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.stragglers import find_straggler, measure_paces, read_recent_steps

PACE = 0.02  # seconds per step that each rank sleeps in place of a device that computes
PART = 0.2  # delay as a share of a step without delay
RANKS = (2, 3, 4)
PHASES = ("data", "forward", "backward")
STRATEGIES = ("ddp", "allreduce")
RIGHT, WRONG, NONE = "rank and phase found", "wrong", "none found"

# Runs without a delay: paired with a delayed run, with competing ranks, with uneven shares.
PAIRED = "pair of a delayed run"
CLEAN: dict[str, dict[str, Any]] = {
    "real networks": {"train": {"max_steps": 400}},
    "unequal shares": {"task": {"args": {"pace": PACE}}, "train": {"batch_size": 7}},
}


class Delay(NamedTuple):
    """The delayed rank and phase."""

    rank: int
    phase: str


def config(ranks: int, strategy: str, steps: int, case: dict[str, Any]) -> RunConfig:
    return RunConfig.from_dict(
        {
            "strategy": strategy,
            "launcher": "spawn",
            "devices": f"cpu:{ranks}",
            "oversubscribe": True,
            "task": {"name": "benchmarks.delays:classification", **case.get("task", {})},
            "train": {
                "threads": 1,
                "epochs": 1000,
                "max_steps": steps,
                "batch_size": 64,
                **case.get("train", {}),
            },
            "eval": {"every_epochs": 0},
            "checkpoint": {"every_epochs": 0, "keep": 0},
        }
    )


def trained(folder: str, what: RunConfig) -> Record:
    run = launch(what, runs_dir=folder)
    if run.wait()["status"] != "completed":
        raise SystemExit(f"the run ended: {run.record.state.reason}")
    return run.record


def step_of(record: Record) -> float:
    return median(
        pace.seconds for pace in measure_paces(record, read_recent_steps(record)).values()
    )


def result(record: Record, delay: Delay | None) -> str:
    """Return what the analysis of the record finds; the diagnosis must agree with it."""
    found = find_straggler(record)
    assert diagnose(record).straggler == found
    if found is None:
        return NONE
    return RIGHT if (found.rank, found.phase) == delay else WRONG


def pair(folder: str, ranks: int, delay: Delay, strategy: str, steps: int) -> tuple[str, str]:
    """Return the results of a run without a delay, which measures the step, and of one with."""
    args: dict[str, Any] = {"pace": PACE}
    plain = trained(folder, config(ranks, strategy, steps, {"task": {"args": args}}))
    args |= {**delay._asdict(), "delay": PART * step_of(plain)}
    late = trained(folder, config(ranks, strategy, steps, {"task": {"args": args}}))
    return result(plain, None), result(late, delay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=20, help="runs with a delay, and as many without"
    )
    parser.add_argument("--steps", type=int, default=120, help="steps of each run")
    parser.add_argument(
        "--more", type=int, default=6, help="further runs without a delay, of each kind"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    late: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
    clean: dict[str, Counter[str]] = {name: Counter() for name in (PAIRED, *CLEAN)}
    cases = islice(cycle(product(RANKS, PHASES)), arguments.runs)
    with tempfile.TemporaryDirectory(prefix="distrain-late-", ignore_cleanup_errors=True) as folder:
        for number, (ranks, phase) in enumerate(cases):
            delay, strategy = Delay(number % ranks, phase), STRATEGIES[number // 9 % 2]
            plain, found = pair(folder, ranks, delay, strategy, arguments.steps)
            clean[PAIRED][plain] += 1
            late[phase][found] += 1
            print(f"{strategy}, {ranks} ranks, {delay}: {found}; without: {plain}", file=sys.stderr)
        for number, name in product(range(arguments.more), CLEAN):
            what = config(
                RANKS[number % 3], STRATEGIES[number // 3 % 2], arguments.steps, CLEAN[name]
            )
            clean[name][found := result(trained(folder, what), None)] += 1
            print(f"{what.strategy}, {what.devices}, {name}: {found}", file=sys.stderr)
    publish(
        _table("delay of a fifth of the step", late),
        _table("no delay", clean),
        json_to=arguments.json,
    )


def _table(title: str, found: dict[str, Counter[str]]) -> Table:
    rows = [
        (name, counts.total(), *(counts[kind] for kind in (RIGHT, WRONG, NONE)))
        for name, counts in found.items()
    ]
    return Table(title, ("case", "runs", RIGHT, WRONG, NONE), rows)


if __name__ == "__main__":
    main()
