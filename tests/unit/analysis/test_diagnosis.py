"""The diagnosis of a run: one sentence with evidence and advice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from distrain.runners.analysis.diagnosis import diagnose
from distrain.runners.analysis.trends import MIN_POINTS, fit_trend
from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import GpuSample, HostSample, RankSample
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunError
from distrain.runners.records.writer import RecordWriter
from distrain.runners.system.devices import Device
from tests.support.records import FACTS, RunBuilder, completed_run, make_window

MIB = 2**20


def step(seconds: float = 1.0, **phases: float) -> Callable[[int, int], dict[str, Any]]:
    """Return steps that are equal on all ranks and over the whole run."""
    return lambda *_: {"seconds": seconds, **phases}


COMPUTING = step(data=0.05, forward=0.3, backward=0.45, comm=0.1, optimizer=0.05)


def rss(bytes_at: Callable[[int], float], rank: int = 0) -> list[RankSample]:
    """Return a memory sample after each of 40 steps."""
    return [
        RankSample(time=1000.5 + n, rank=rank, cpu=100.0, rss=bytes_at(n), processes=1)
        for n in range(1, 41)
    ]


def test_input_bound(tmp_path: Path) -> None:
    run = completed_run(tmp_path, step(data=0.6, forward=0.1, backward=0.2, comm=0.1))
    found = diagnose(run)
    assert (found.kind, found.straggler) == ("input", None)
    assert "wait for data 60 % of a step" in found.evidence
    assert "loader processes: 0; 8 cores" in found.evidence
    assert "data.workers = 2" in found.advice


def test_input_bound_advice_with_loaders_depends_on_free_cores(tmp_path: Path) -> None:
    slow = step(data=0.6, forward=0.1, backward=0.2)
    host = HostSample(time=1001.0, cpu=40.0, memory_used=1.0, memory_total=8.0, load=1.0)
    two_workers = completed_run(tmp_path, slow, samples=[host], **{"data.workers": 2})
    assert "data.workers = 4" in diagnose(two_workers).advice
    eight_workers = completed_run(tmp_path, slow, samples=[host], **{"data.workers": 8})
    assert "reduce the work per sample" in diagnose(eight_workers).advice


def test_the_cores_of_a_container_are_those_that_it_may_use(tmp_path: Path) -> None:
    slow = step(data=0.6, forward=0.1, backward=0.2)
    host = HostSample(time=1001.0, cpu=30.0, memory_used=1.0, memory_total=8.0, load=1.0)
    full = [RankSample(time=1001.0, rank=rank, cpu=96.0, rss=1, processes=2) for rank in (0, 1)]
    found = diagnose(
        completed_run(
            tmp_path, slow, samples=[host, *full], usable_threads=2, **{"data.workers": 2}
        )
    )
    assert found.evidence.endswith("loader processes: 2; 2 cores, 96 % busy")
    assert "reduce the work per sample" in found.advice


def test_the_cores_of_a_job_are_not_those_of_the_host_that_submitted_it(tmp_path: Path) -> None:
    slow = step(data=0.6, forward=0.1, backward=0.2)
    host = HostSample(time=1001.0, cpu=40.0, memory_used=1.0, memory_total=8.0, load=1.0)
    job = {"launcher": "slurm", "data.workers": 8}
    found = diagnose(completed_run(tmp_path, slow, samples=[host], **job))
    assert found.evidence.endswith("loader processes: 8; the cores are 40 % busy")
    assert "data.workers = 16" in found.advice


def test_communication_bound_shows_overlap_separately(tmp_path: Path) -> None:
    run = completed_run(
        tmp_path,
        step(forward=0.2, backward=0.3, comm=0.4, overlap=0.15),
        facts=FACTS,
        strategy="ddp",
    )
    found = diagnose(run)
    assert found.kind == "communication"
    assert "wait for gradients 40 % of a step" in found.evidence
    assert "another 15 % of communication overlaps with backward" in found.evidence
    assert "26,122 parameters, backend gloo" in found.evidence
    assert "fp16_compress" in found.advice


def test_strategy_allreduce_is_advised_to_use_ddp(tmp_path: Path) -> None:
    run = completed_run(tmp_path, step(forward=0.2, backward=0.3, comm=0.4), strategy="allreduce")
    assert 'strategy = "ddp"' in diagnose(run).advice


def test_compute_bound(tmp_path: Path) -> None:
    found = diagnose(completed_run(tmp_path, COMPUTING))
    assert found.kind == "compute"
    assert "forward 30 %, backward 45 %, optimizer 5 %" in found.evidence


@pytest.mark.parametrize(
    ("name", "changes", "advice"),
    [
        ("Tesla T4", {}, 'set precision = "fp16"'),
        ("NVIDIA A100-SXM4-80GB", {}, 'set precision = "bf16" or "tf32"'),
        ("Tesla T4", {"precision": "fp16"}, "set train.compile = true, or use more GPUs"),
        ("Tesla T4", {"precision": "fp16", "strategy": "dp"}, "use more GPUs"),
    ],
)
def test_the_advice_where_gpus_set_the_pace_is_possible(
    name: str, changes: dict[str, Any], advice: str, tmp_path: Path
) -> None:
    gpus = [Device(kind="cuda", index=index, uuid=f"GPU-{index}", name=name) for index in (0, 1)]
    config = RunConfig().with_changes(changes)
    plan = plan_here(config, gpus)
    writer = RecordWriter(create_run(tmp_path, config, plan=plan, word="x"))
    for each in range(1, 41):
        for rank in range(plan.world_size):
            writer.add(make_window(rank, each, **COMPUTING(rank, each)))
    writer.set_state(status="completed")
    writer.close()
    assert diagnose(Record(writer.dir)).advice == advice


def test_a_script_without_comm_is_not_said_to_wait_for_gradients(tmp_path: Path) -> None:
    script = {"path": "train.py"}
    computing = step(data=0.05, forward=0.4, backward=0.45, optimizer=0.05)
    one = diagnose(completed_run(tmp_path, computing, world=1, script=script))
    assert one.sentence == "compute-bound: the devices set the pace"
    two = diagnose(completed_run(tmp_path, computing, script=script))
    assert two.sentence.endswith("is computation, including any wait for other ranks")


def test_no_bottleneck_stands_out(tmp_path: Path) -> None:
    found = diagnose(completed_run(tmp_path, step(data=0.2, forward=0.25, backward=0.25, comm=0.2)))
    assert (found.kind, found.advice) == ("nothing", "")
    assert "other 10 %" in found.evidence


def test_most_of_a_step_is_outside_the_phases(tmp_path: Path) -> None:
    steps = step(data=0.02, forward=0.05, backward=0.05)
    found = diagnose(completed_run(tmp_path / "preset", steps))
    assert found.sentence == "most of a step is spent outside the measured phases"
    assert "other 88 %" in found.evidence
    found = diagnose(completed_run(tmp_path / "script", steps, script={"path": "train.py"}))
    assert "distrain.phase" in found.advice


def test_a_straggler_comes_before_where_the_time_goes(tmp_path: Path) -> None:
    def steps(rank: int, _: int) -> dict[str, Any]:
        late = 0.2 * rank
        waits = {"comm": 0.35 - late, "wait": 0.35 - late}
        return {"seconds": 1.0, "data": 0.05 + late, "forward": 0.2, "backward": 0.4, **waits}

    found = diagnose(completed_run(tmp_path, steps))
    assert found.kind == "straggler"
    assert found.sentence == (
        "the other ranks wait for rank 1: its data phase is 20 % of a step longer"
    )
    assert "200 ms longer per step" in found.evidence
    assert "rank 1" in found.advice
    assert found.straggler is not None
    assert found.straggler.rank == 1


def test_memory_growth_is_given_per_thousand_steps(tmp_path: Path) -> None:
    noise = Random(0)
    leak = rss(lambda n: 300 * MIB + 2 * MIB * n + noise.uniform(-3, 3) * MIB, rank=1)
    found = diagnose(completed_run(tmp_path, COMPUTING, samples=[*rss(lambda _: 300 * MIB), *leak]))
    assert found.kind == "creeping"
    assert "the memory of rank 1 grows by" in found.sentence
    per_thousand = float(found.sentence.split(" by ")[1].split()[0])
    assert per_thousand == pytest.approx(2000 / 1024, rel=0.1)  # GiB
    assert "full in" not in found.evidence  # the host was not sampled


@pytest.mark.parametrize(("growing", "steps"), [(1, "1,024"), (2, "512")])
def test_the_memory_of_a_host_is_full_with_all_that_uses_it(
    growing: int, steps: str, tmp_path: Path
) -> None:
    grown = [rss(lambda n: (300 + 2 * n) * MIB, rank) for rank in range(growing)]
    host = HostSample(
        time=1039.5, cpu=40.0, memory_used=6 * 1024 * MIB, memory_total=8 * 1024 * MIB, load=1.0
    )
    samples = [*chain.from_iterable(grown), host]
    found = diagnose(completed_run(tmp_path, COMPUTING, samples=samples))
    assert f"full in {steps} steps" in found.evidence


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
def test_memory_that_settles_or_oscillates_is_no_growth(
    used: Callable[[int], float], tmp_path: Path
) -> None:
    assert diagnose(completed_run(tmp_path, COMPUTING, samples=rss(used))).kind == "compute"


def test_memory_that_settles_in_the_first_third_of_a_resumed_run_is_no_growth(
    tmp_path: Path,
) -> None:
    run = RunBuilder(tmp_path)
    run.step = 1000
    run.writer.set_state(facts=structs.replace(FACTS, start_step=run.step))
    for n in range(40):
        run.steps(1)
        used = 300 + 40 * min(n, 13) + 0.1 * n
        run.writer.add(RankSample(time=run.now, rank=0, cpu=100.0, rss=used * MIB, processes=1))
    assert diagnose(run.end().record).kind == "nothing"


def test_memory_of_a_gpu_near_its_limit_comes_first(tmp_path: Path) -> None:
    used = [
        GpuSample(time=1000.5 + n, gpu=0, uuid="GPU-0", name="x", memory_used=u, memory_total=100.0)
        for n, u in enumerate([50.0, 96.0, 60.0])
    ]
    found = diagnose(completed_run(tmp_path, COMPUTING, samples=used))
    assert found.kind == "memory"
    assert "GPU 0" in found.sentence
    assert "96 B of 100 B" in found.evidence


def test_memory_of_the_host_near_its_limit(tmp_path: Path) -> None:
    host = HostSample(time=1001.0, cpu=40.0, memory_used=7.9, memory_total=8.0, load=1.0)
    assert "the host" in diagnose(completed_run(tmp_path, COMPUTING, samples=[host])).sentence


def test_steps_that_become_longer_are_a_drift(tmp_path: Path) -> None:
    noise = Random(1)

    def steps(_: int, number: int) -> dict[str, Any]:
        forward = 0.3 + 0.01 * number + noise.uniform(-0.02, 0.02)
        return {"seconds": 0.6 + forward, "forward": forward, "backward": 0.5}

    found = diagnose(completed_run(tmp_path, steps))
    assert found.kind == "drifting"
    assert "longer over the run" in found.sentence
    assert "most of the change is in forward" in found.evidence


def test_steps_that_become_longer_ever_faster_are_a_drift_between_times_that_were_measured(
    tmp_path: Path,
) -> None:
    def steps(_: int, number: int) -> dict[str, Any]:
        forward = 0.05 + 2 * (number / 40) ** 2
        return {"seconds": 0.1 + forward, "forward": forward, "backward": 0.05}

    found = diagnose(completed_run(tmp_path, steps))
    assert found.kind == "drifting"
    assert "longer over the run" in found.sentence
    assert "from 151 ms" in found.evidence


def test_steps_that_scatter_are_no_drift(tmp_path: Path) -> None:
    noise = Random(2)

    def steps(*_: int) -> dict[str, Any]:
        forward = 0.5 + noise.uniform(-0.2, 0.2)
        return {"seconds": 0.6 + forward, "forward": forward, "backward": 0.5}

    assert diagnose(completed_run(tmp_path, steps)).kind == "compute"


def test_a_run_of_few_steps_has_no_diagnosis(tmp_path: Path) -> None:
    assert diagnose(completed_run(tmp_path, COMPUTING, count=2)).kind == "unknown"


def test_a_run_without_steps_has_no_diagnosis(tmp_path: Path) -> None:
    record = completed_run(tmp_path, COMPUTING, count=0)
    assert diagnose(record).kind == "unknown"


def test_the_diagnosis_of_a_failed_run_is_its_error(tmp_path: Path) -> None:
    record = completed_run(tmp_path, COMPUTING)
    plan = plan_here(record.config, [Device(kind="cpu", index=index) for index in range(2)])
    writer = RecordWriter(create_run(tmp_path, record.config, plan=plan, word="failed"))
    error = RunError(rank=1, type="ValueError", message="odd")
    writer.set_state(status="failed", error=error, reason="rank 1: ValueError: odd")
    writer.close()
    found = diagnose(Record(writer.dir))
    assert (found.kind, found.sentence) == ("failed", "rank 1: ValueError: odd")


def test_a_trend_ignores_spikes_and_noise() -> None:
    x = [float(n) for n in range(30)]
    spiked = [2 * value + 5 for value in x]
    spiked[7] = 1e9
    found = fit_trend(x, spiked)
    assert found is not None
    assert found.slope == pytest.approx(2)
    assert found.agreement > 0.8
    assert found.first == pytest.approx(5)
    noise = Random(3)
    scattered = fit_trend(x, [noise.random() for _ in x])
    assert scattered is not None
    assert abs(scattered.agreement) < 0.4
    assert fit_trend(x[: MIN_POINTS - 1], x[: MIN_POINTS - 1]) is None
