"""Real runs with a slow rank, which is named with its phase, and runs without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrain import Record, Run, RunConfig, launch
from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.stragglers import find_straggler
from distrain.runners.cli.run_page import collect_data, format_page
from distrain.runners.protocol.events import OTHER
from distrain.runners.records.snapshot import Follower
from distrain.runners.records.timeseries.series import STEPS
from tests.support import ROOT

PACE_S, DELAY_S, STEPS_OF_A_RUN = 0.02, 0.012, 80


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Record]]:
    """Return a function that trains and returns the record; ranks sleep instead of computing."""
    monkeypatch.chdir(ROOT)  # where the task is
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started: list[Run] = []

    def train(ranks: int = 2, late: dict[str, Any] | None = None, **changes: Any) -> Record:
        args = {"pace": PACE_S, **({"delay": DELAY_S, **late} if late else {})}
        base: dict[str, Any] = {
            "task.name": "benchmarks.delays:classification",
            "task.args": args,
            "launcher": "spawn",
            "devices": f"cpu:{ranks}",
            "oversubscribe": True,
            "train.threads": 1,
            "train.epochs": 1000,
            "train.max_steps": STEPS_OF_A_RUN,
            "eval.every_epochs": 0,
            "checkpoint.keep": 0,
        }
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        run = launch(RunConfig().with_changes(base | dotted), runs_dir=tmp_path / "runs")
        started.append(run)
        assert run.wait(200)["status"] == "completed", run.record.state.error
        return run.record

    yield train
    for run in started:
        if run.is_live:
            run.stop(now=True)


@pytest.mark.parametrize(
    ("ranks", "rank", "phase", "strategy"),
    [
        (2, 0, "forward", "allreduce"),
        (2, 1, "backward", "ddp"),
        (4, 2, "data", "ddp"),
    ],
)
def test_a_slow_rank_is_named_with_its_phase(
    ranks: int, rank: int, phase: str, strategy: str, trained: Callable[..., Record]
) -> None:
    record = trained(ranks, {"rank": rank, "phase": phase}, strategy=strategy)
    found = find_straggler(record)
    assert found is not None
    assert (found.rank, found.phase) == (rank, phase)
    assert found.seconds == pytest.approx(DELAY_S, rel=0.5)
    # the page, the JSON object and the diagnosis agree
    assert f"the other ranks wait for rank {rank}: its {phase} phase is" in format_page(record)
    diagnosis = diagnose(record)
    assert collect_data(record)["diagnosis"] == diagnosis
    assert (diagnosis.kind, diagnosis.straggler) == ("straggler", found)


def test_equal_ranks_have_no_straggler(trained: Callable[..., Record]) -> None:
    # 7 samples: the ranks' shares are unequal; three ranks share two cores
    record = trained(3, train__batch_size=7)
    assert find_straggler(record) is None
    assert diagnose(record).kind != "straggler"
    # and the phases add up to the step
    for totals in record.totals(STEPS).values():
        phases = sum(totals[name] for name in ("data", "forward", "backward", "comm", "optimizer"))
        assert 0.95 * totals["seconds"] <= phases <= totals["seconds"]
    follower = Follower(record)
    follower.new_events()
    assert all(rank.shares[OTHER] <= 0.05 for rank in follower.snapshot().ranks)
