"""Real runs in which one rank is late: it is named with its phase, and nobody is where none is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners import Record, Run, RunConfig, launch
from runners.cli.showing import everything, page
from runners.diagnosis import diagnose
from runners.events import OTHER
from runners.series import STEPS
from runners.snapshot import Follower
from runners.stragglers import straggler

ROOT = Path(__file__).parents[2]
PACE_S, DELAY_S, STEPS_OF_A_RUN = 0.02, 0.012, 80


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Record]]:
    """Records of runs that have ended, of ranks that sleep in place of a device that computes."""
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
        run.stop(now=True) if run.is_live else None


@pytest.mark.parametrize(
    ("ranks", "rank", "phase", "strategy"),
    [
        (2, 1, "data", "ddp"),
        (2, 0, "forward", "allreduce"),
        (2, 1, "backward", "ddp"),
        (4, 2, "data", "ddp"),
    ],
)
def test_a_late_rank_is_named_with_its_phase(
    ranks: int, rank: int, phase: str, strategy: str, trained: Callable[..., Record]
) -> None:
    record = trained(ranks, {"rank": rank, "phase": phase}, strategy=strategy)
    found = straggler(record)
    assert found is not None
    assert (found.rank, found.phase) == (rank, phase)
    assert found.seconds == pytest.approx(DELAY_S, rel=0.5)
    # and so say the page, its object, and what others ask
    assert f"waiting for rank {rank}, late in {phase}" in page(record)
    told = diagnose(record)
    assert everything(record)["diagnosis"] == told
    assert (told.kind, told.straggler) == ("straggler", found)


@pytest.mark.parametrize("ranks", [2, 3])
def test_nobody_is_named_where_none_is_late(ranks: int, trained: Callable[..., Record]) -> None:
    # 7 samples: shares are not equal; three ranks have two cores
    record = trained(ranks, train__batch_size=7)
    assert straggler(record) is None
    assert diagnose(record).kind != "straggler"
    # and the phases add up to the step
    for totals in record.totals(STEPS).values():
        told = sum(totals[name] for name in ("data", "forward", "backward", "comm", "optimizer"))
        assert 0.95 * totals["seconds"] <= told <= totals["seconds"]
    follower = Follower(record)
    follower.news()
    assert all(rank.shares[OTHER] <= 0.05 for rank in follower.snapshot().ranks)
