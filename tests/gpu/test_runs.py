"""Whole runs on one GPU, some with two ranks that share it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain import Run
from distrain.runners.records.timeseries.series import GPU
from tests.gpu.conftest import ALONE, SHARED, facts_of, notices_of, run


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    return run(tmp_path_factory.mktemp("runs"), ALONE)


def test_the_gpu_is_sampled(reference: tuple[Run, dict[str, Any]]) -> None:
    samples = reference[0].record.latest(GPU)
    assert samples
    for sample in samples.values():
        assert sample.uuid
        assert sample.memory_total is None or sample.memory_total > 0


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_every_precision_is_close_to_fp32(
    precision: str, reference: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    _, summary = run(tmp_path, ALONE | {"precision": precision})
    assert summary["precision"] == precision
    assert summary["eval"]["top1"] == pytest.approx(reference[1]["eval"]["top1"], abs=0.05)


@pytest.mark.parametrize("strategy", ["ddp", "allreduce"])
@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_two_ranks_share_one_gpu_over_gloo(
    launcher: str, strategy: str, reference: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    shared, summary = run(tmp_path, SHARED | {"strategy": strategy, "launcher": launcher})
    assert summary["world_size"] == 2
    assert facts_of(shared).backend == "gloo"
    assert summary["eval"]["samples"] == 360
    assert summary["eval"]["top1"] == pytest.approx(reference[1]["eval"]["top1"], abs=0.05)


@pytest.mark.parametrize("strategy", ["ddp", "allreduce"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nccl_with_a_single_rank(
    precision: str, strategy: str, reference: tuple[Run, dict[str, Any]], tmp_path: Path
) -> None:
    alone, summary = run(tmp_path, {"strategy": strategy, "devices": [0], "precision": precision})
    assert facts_of(alone).backend == "nccl"
    assert summary["eval"]["top1"] == pytest.approx(reference[1]["eval"]["top1"], abs=0.05)


def test_dp_on_one_gpu_reports_that_nothing_is_parallel(tmp_path: Path) -> None:
    alone, _ = run(tmp_path, ALONE | {"strategy": "dp"})
    assert any("nothing is parallel" in text for text in notices_of(alone))
