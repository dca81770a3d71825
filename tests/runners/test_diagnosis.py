"""One sentence per run, with its evidence and what to try."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fabricated import a_run

from runners.devices import Device
from runners.diagnosis import diagnose
from runners.events import Facts, GpuSample, HostSample, RankSample
from runners.plan import make_plan
from runners.record import Record, RecordWriter, create_run
from runners.state import RunError
from runners.trends import LEAST, trend

MIB = 2**20
FACTS = Facts(
    time=0.0,
    train_samples=640,
    eval_samples=100,
    steps_per_epoch=10,
    total_steps=40,
    parameters=26_122,
    backend="gloo",
)


def step(seconds: float = 1.0, **phases: float) -> Callable[[int, int], dict[str, Any]]:
    """The same step on all ranks and all along."""
    return lambda *_: {"seconds": seconds, **phases}


COMPUTING = step(data=0.05, forward=0.3, backward=0.45, comm=0.1, optimizer=0.05)


def rss(of: Callable[[int], float], rank: int = 0) -> list[RankSample]:
    """A sample after each of 40 steps."""
    return [
        RankSample(time=1000.5 + n, rank=rank, cpu=100.0, rss=of(n), processes=1)
        for n in range(1, 41)
    ]


def test_input_bound(tmp_path: Path) -> None:
    run = a_run(tmp_path, step(data=0.6, forward=0.1, backward=0.2, comm=0.1))
    found = diagnose(run)
    assert (found.kind, found.straggler) == ("input", None)
    assert "60 %" in found.evidence
    assert "loader processes: 0, cores: 8" in found.evidence
    assert "data.workers = 2" in found.advice


def test_input_bound_with_loaders_depends_on_the_cores(tmp_path: Path) -> None:
    slow = step(data=0.6, forward=0.1, backward=0.2)
    host = HostSample(time=1001.0, cpu=40.0, memory_used=1.0, memory_total=8.0, load=1.0)
    some = a_run(tmp_path, slow, samples=[host], **{"data.workers": 2})
    assert "data.workers = 4" in diagnose(some).advice
    all_of_them = a_run(tmp_path, slow, samples=[host], **{"data.workers": 8})
    assert "less work for each sample" in diagnose(all_of_them).advice


def test_communication_bound_tells_what_is_hidden_apart(tmp_path: Path) -> None:
    run = a_run(
        tmp_path,
        step(forward=0.2, backward=0.3, comm=0.4, overlap=0.15),
        facts=FACTS,
        strategy="ddp",
    )
    found = diagnose(run)
    assert found.kind == "communication"
    assert "40 % of a step is waiting" in found.evidence
    assert "another 15 %" in found.evidence
    assert "26,122 parameters by gloo" in found.evidence
    assert "fp16_compress" in found.advice


def test_all_reduce_by_hand_is_told_of_ddp(tmp_path: Path) -> None:
    run = a_run(tmp_path, step(forward=0.2, backward=0.3, comm=0.4), strategy="allreduce")
    assert 'strategy = "ddp"' in diagnose(run).advice


def test_compute_bound(tmp_path: Path) -> None:
    found = diagnose(a_run(tmp_path, COMPUTING))
    assert found.kind == "compute"
    assert "forward 30 %, backward 45 %, optimizer 5 %" in found.evidence


def test_nothing_stands_out(tmp_path: Path) -> None:
    found = diagnose(a_run(tmp_path, step(data=0.2, forward=0.25, backward=0.25, comm=0.2)))
    assert (found.kind, found.advice) == ("nothing", "")
    assert "other 10 %" in found.evidence


def test_waiting_for_a_rank_comes_before_where_the_time_goes(tmp_path: Path) -> None:
    def steps(rank: int, _: int) -> dict[str, Any]:
        late = 0.2 * rank
        waits = {"comm": 0.35 - late, "wait": 0.35 - late}
        return {"seconds": 1.0, "data": 0.05 + late, "forward": 0.2, "backward": 0.4, **waits}

    found = diagnose(a_run(tmp_path, steps))
    assert found.kind == "straggler"
    assert found.sentence == "waiting for rank 1, late in data by 20 % of a step"
    assert "200 ms a step longer" in found.evidence
    assert "rank 1" in found.advice
    assert found.straggler is not None
    assert found.straggler.rank == 1


def test_memory_that_creeps_up_is_told_per_thousand_steps(tmp_path: Path) -> None:
    noise = Random(0)
    leak = rss(lambda n: 300 * MIB + 2 * MIB * n + noise.uniform(-3, 3) * MIB, rank=1)
    found = diagnose(a_run(tmp_path, COMPUTING, samples=[*rss(lambda _: 300 * MIB), *leak]))
    assert found.kind == "creeping"
    assert "the memory of rank 1 creeps up by" in found.sentence
    per_thousand = float(found.sentence.split(" by ")[1].split()[0])
    assert per_thousand == pytest.approx(2000 / 1024, rel=0.1)  # GiB
    assert "full in" in found.evidence


@pytest.mark.parametrize(
    "used",
    [
        lambda _: 300.0 * MIB,
        lambda n: (300.0 + 40 * min(n, 10)) * MIB,
        lambda n: (300.0 + 60 * (n % 2)) * MIB,
        lambda n: (300.0 + 0.1 * n) * MIB,
    ],
    ids=["flat", "settles", "saw", "hardly"],
)
def test_memory_that_settles_or_swings_does_not_creep(
    used: Callable[[int], float], tmp_path: Path
) -> None:
    assert diagnose(a_run(tmp_path, COMPUTING, samples=rss(used))).kind == "compute"


def test_memory_of_a_gpu_near_its_limit_comes_first(tmp_path: Path) -> None:
    used = [
        GpuSample(time=1000.5 + n, gpu=0, uuid="GPU-0", name="x", memory_used=u, memory_total=100.0)
        for n, u in enumerate([50.0, 96.0, 60.0])
    ]
    found = diagnose(a_run(tmp_path, COMPUTING, samples=used))
    assert found.kind == "memory"
    assert "GPU 0" in found.sentence
    assert "96 B of 100 B" in found.evidence


def test_the_hosts_memory_near_its_limit(tmp_path: Path) -> None:
    host = HostSample(time=1001.0, cpu=40.0, memory_used=7.9, memory_total=8.0, load=1.0)
    assert "the host" in diagnose(a_run(tmp_path, COMPUTING, samples=[host])).sentence


def test_steps_that_get_longer_drift(tmp_path: Path) -> None:
    noise = Random(1)

    def steps(_: int, number: int) -> dict[str, Any]:
        forward = 0.3 + 0.01 * number + noise.uniform(-0.02, 0.02)
        return {"seconds": 0.6 + forward, "forward": forward, "backward": 0.5}

    found = diagnose(a_run(tmp_path, steps))
    assert found.kind == "drifting"
    assert "steps get longer" in found.sentence
    assert "most of it is forward" in found.evidence


def test_steps_that_scatter_do_not_drift(tmp_path: Path) -> None:
    noise = Random(2)

    def steps(*_: int) -> dict[str, Any]:
        forward = 0.5 + noise.uniform(-0.2, 0.2)
        return {"seconds": 0.6 + forward, "forward": forward, "backward": 0.5}

    assert diagnose(a_run(tmp_path, steps)).kind == "compute"


def test_a_run_of_a_few_steps_is_not_judged(tmp_path: Path) -> None:
    assert diagnose(a_run(tmp_path, COMPUTING, count=2)).kind == "unknown"


def test_a_run_that_has_not_begun_is_not_judged(tmp_path: Path) -> None:
    record = a_run(tmp_path, COMPUTING, count=0)
    assert diagnose(record).kind == "unknown"


def test_a_failed_run_has_its_failure(tmp_path: Path) -> None:
    record = a_run(tmp_path, COMPUTING)
    plan = make_plan(record.config, [Device(kind="cpu", index=index) for index in range(2)])
    writer = RecordWriter(create_run(tmp_path, record.config, plan=plan, word="failed"))
    error = RunError(rank=1, type="ValueError", message="odd")
    writer.set_state(status="failed", error=error, reason="rank 1: ValueError: odd")
    writer.close()
    found = diagnose(Record(writer.dir))
    assert (found.kind, found.sentence) == ("failed", "rank 1: ValueError: odd")


def test_a_trend_is_neither_bent_by_a_spike_nor_seen_in_noise() -> None:
    x = [float(n) for n in range(30)]
    spiked = [2 * value + 5 for value in x]
    spiked[7] = 1e9
    found = trend(x, spiked)
    assert found is not None
    assert found.slope == pytest.approx(2)
    assert found.agreement > 0.8
    assert found.first == pytest.approx(5)
    noise = Random(3)
    scattered = trend(x, [noise.random() for _ in x])
    assert scattered is not None
    assert abs(scattered.agreement) < 0.4
    assert trend(x[: LEAST - 1], x[: LEAST - 1]) is None
