"""Every option that reaches the device: such runs train as the plain one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.verification.cases import verify
from tests.gpu.conftest import ALONE, LONGEST_S, SHARED, facts_of, notices_of, run

IMAGES = {
    "data.name": "synthetic",
    "data.args": {"shape": [3, 32, 32], "samples": 512, "classes": 10},
    "train.epochs": 2,
    "train.batch_size": 64,
    "train.lr": 0.01,
}
RESNET = IMAGES | {"model.name": "resnet18", "train.channels_last": True, "precision": "bf16"}
OPTIONS: dict[str, dict[str, Any]] = {
    "adamw": {"train.optimizer": "adamw", "train.lr": 0.01, "train.clip_norm": 1.0},
    "adam in fp16": {"train.optimizer": "adam", "train.lr": 0.01, "precision": "fp16"},
    "any optimizer": {"train.optimizer": "torch.optim:RMSprop", "train.lr": 0.001},
    "micro-batches in fp16": {"train.accumulate": 3, "precision": "fp16"},
    "average of weights": {"train.ema": 0.9},
    "equal average": {"train.swa_share": 0.3, "precision": "fp16"},
    "deterministic": {"train.deterministic": True},
    "loader processes": {"data.workers": 2, "data.worker_context": "forkserver"},
    "pageable memory": {"data.pin_memory": False},
    "compiled": {"train.compile": True},
    "images in bf16": RESNET,
    "compiled images in fp16": RESNET | {"train.compile": True, "precision": "fp16"},
}
OF_DDP: dict[str, dict[str, Any]] = {
    "bf16_compress": {"ddp.comm_hook": "bf16_compress"},
    "fp16_compress": {"ddp.comm_hook": "fp16_compress", "precision": "fp16"},
    "powerSGD": {"ddp.comm_hook": "powerSGD", "ddp.powersgd_start": 5},
    "synchronised batch norm": RESNET | {"train.sync_batchnorm": True},
    "static graph": {"ddp.static_graph": True, "ddp.bucket_mb": 0.01},
    "compiled DDP": {"train.compile": True},
    "one process per rank": {"launcher": "spawn"},
}
VERIFIED: dict[str, dict[str, Any]] = {
    "single": {"strategy": "single", "launcher": "inline"},
    "dp": {"strategy": "dp", "launcher": "inline"},
    "ddp": {},
    "allreduce in tf32": {"strategy": "allreduce", "precision": "tf32"},
    "fp16": {"precision": "fp16", "train.accumulate": 2},
    "bf16": {"precision": "bf16", "train.optimizer": "adamw", "train.lr": 0.001},
    "adam": {"train.optimizer": "adam", "train.lr": 0.001, "train.clip_norm": 0.1},
    "two ranks": SHARED,
    "two ranks by hand": {**SHARED, "strategy": "allreduce", "precision": "fp16"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_trains_on_the_gpu(option: str, tmp_path: Path) -> None:
    _, summary = run(tmp_path, ALONE | OPTIONS[option])
    assert learned(summary, OPTIONS[option])


@pytest.mark.parametrize("option", OF_DDP)
def test_an_option_of_ddp_trains_over_nccl(option: str, tmp_path: Path) -> None:
    started, summary = run(tmp_path, {"devices": [0]} | OF_DDP[option])
    assert facts_of(started).backend == "nccl"
    assert learned(summary, OF_DDP[option])


def test_loader_processes_do_not_delay_the_end(tmp_path: Path) -> None:
    started, _ = run(tmp_path, ALONE | {"data.workers": 4})
    assert notices_of(started) == []


def test_a_run_in_two_parts_computes_what_one_does(tmp_path: Path) -> None:
    same = ALONE | {"train.deterministic": True, "train.ema": 0.9}
    _, whole = run(tmp_path, same | {"train.epochs": 4})
    first, _ = run(tmp_path, same | {"train.epochs": 2})
    again = first.resume({"train.epochs": 4}).wait(LONGEST_S)
    assert again["eval"] == whole["eval"]


def test_a_language_model_trains_on_the_gpu(tmp_path: Path) -> None:
    changes = {"train.max_steps": 100, "eval.every_epochs": 0, "precision": "bf16"}
    _, summary = run(tmp_path, changes | {"devices": [0]}, preset="gpt")
    assert 1 < summary["eval"]["perplexity"] < 100


@pytest.mark.parametrize("name", VERIFIED)
def test_what_is_computed_on_the_gpu_is_verified(name: str) -> None:
    (result,) = verify(["ddp"], changes={"devices": [0], **VERIFIED[name]})
    assert result.passed, result.sentence
    assert result.checks


def learned(summary: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Return whether digits were learned; the labels of synthetic images mean nothing."""
    return "data.name" in changes or summary["eval"]["top1"] > 0.85
