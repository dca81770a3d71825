"""Measure the cost of the engine per step, with full reporting, against a bare PyTorch loop.

Targets: with the CNN a step takes at most 1.01 times as long, on one device and under DDP. The
fixed cost per step is at most 30 µs, measured with a tiny network whose steps take 1 ms. "A/A"
compares the two turns of the bare loop in a block with each other, which should be 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.report import Table, median_interval, publish
from distrain import RunConfig, launch
from distrain.runners.config.launch_sections import ReportConfig

NARROW = 0.005  # half width of the 95 % interval of the ratio at which measuring stops
NARROW_S = 5e-6  # the same for the fixed cost, in seconds
BIG = 10**6
# glibc returns large blocks to the system and faults them in again, thousands of pages per step of
# the CNN. That cost depends on the order of frees and would hide the difference.
STEADY_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**33)}

SINGLE = {"strategy": "single", "launcher": "inline", "devices": "cpu:1"}
DDP = {"strategy": "ddp", "launcher": "torchrun", "devices": "cpu:2"}


def image(steps: int, batch: int, shape: list[int], classes: int = 10) -> dict[str, Any]:
    """Return data and train settings: synthetic images for epochs of `steps` steps."""
    args = {"shape": shape, "classes": classes, "samples": steps * batch, "eval_samples": 8}
    return {"data": {"name": "synthetic", "args": args}, "train": {"batch_size": batch}}


CNN = {"model": {"name": "cnn"}}
MNIST = [1, 28, 28]
TINY = {"model": {"name": "mlp", "args": {"hidden": [128]}}, **image(100, 64, [1, 16, 16])}
CASES: dict[str, dict[str, Any]] = {
    "cnn, single": {**SINGLE, **CNN, **image(64, 16, MNIST)},
    "cnn, ddp": {**DDP, **CNN, **image(64, 32, MNIST)},
    "tiny mlp, single": {**SINGLE, **TINY},
    "tiny mlp, ddp": {**DDP, **TINY},
}
RESNET = {
    "model": {"name": "resnet50"},
    "precision": "bf16",
    **image(40, 128, [3, 224, 224], classes=1000),
}
RESNET["train"]["channels_last"] = True
ON_GPU: dict[str, dict[str, Any]] = {
    "resnet50 bf16, GPU": {**SINGLE, **RESNET},
    "resnet50 bf16, ddp, GPU": {**DDP, **RESNET},
    "cnn, GPU": {**SINGLE, **CNN, **image(100, 128, MNIST)},
    "tiny mlp, GPU": {**SINGLE, **TINY, **image(100, 64, [1, 16, 16])},
}
for case in ON_GPU.values():  # the bare loop has no copy ahead of its step
    case["devices"] = [0]
    case["data"]["args"]["on_device"] = True


def config(case: dict[str, Any], seconds: float, out: Path, bare_first: bool) -> RunConfig:
    args = {"seconds": seconds, "out": str(out), "bare_first": bare_first}
    return RunConfig.from_dict(
        {
            **case,
            "task": {"name": "benchmarks.side_by_side:classification", "args": args},
            "train": {**case["train"], "epochs": BIG, "lr": 0.001},
            # The supervisor is stopped half of the time, so this samples at the default rate.
            "report": {"sample_s": 2 * ReportConfig().sample_s},
            "eval": {"every_epochs": 0},
            "checkpoint": {"every_epochs": 0, "keep": 0},
        }
    )


def measure(case: dict[str, Any], seconds: float, bare_first: bool) -> dict[str, Any]:
    """Run a case once and return what its rank 0 measured."""
    with tempfile.TemporaryDirectory(
        prefix="distrain-overhead-",
        ignore_cleanup_errors=True,  # the supervisor may still be closing its files
    ) as folder:
        out = Path(folder) / "found.json"
        run = launch(config(case, seconds, out, bare_first), runs_dir=folder)
        while run.is_live:
            time.sleep(1.0)
        if not out.exists():
            raise SystemExit(f"the run ended without figures: {run.summary().get('error')}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def enough(found: list[dict[str, Any]]) -> bool:
    """Return whether the interval of the ratio or of the fixed cost is narrow enough."""
    low, high = median_interval([ours / bare for one in found for ours, bare in one["pairs"]])
    least, most = median_interval([ours - bare for one in found for ours, bare in one["pairs"]])
    return high - low <= 2 * NARROW or most - least <= 2 * NARROW_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cases = CASES | (ON_GPU if torch.cuda.is_available() else {})
    parser.add_argument("--cases", nargs="+", choices=cases, default=list(cases), metavar="CASE")
    parser.add_argument("--seconds", type=float, default=30.0, help="of measuring in each run")
    parser.add_argument("--rounds", type=int, default=8, help="maximum runs per case")
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.rounds = 0.1, 1
    os.environ.update(STEADY_MEMORY)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.cases}
    for turn in range(arguments.rounds):
        for name, found in results.items():
            if turn < 2 or not enough(found):
                found.append(measure(cases[name], arguments.seconds, bare_first=bool(turn % 2)))
                print(f"{name}: {_line(found)}", file=sys.stderr)
    publish(_steps(results), _calls(results), json_to=arguments.json)


def _line(found: list[dict[str, Any]]) -> str:
    pairs = [pair for one in found for pair in one["pairs"]]
    low, high = median_interval([ours / bare for ours, bare in pairs])
    return f"{len(pairs)} blocks, ratio {low:.4f} to {high:.4f}"


def _steps(results: dict[str, list[dict[str, Any]]]) -> Table:
    rows = []
    for name, found in results.items():
        pairs = [pair for one in found for pair in one["pairs"]]
        ratios = [ours / bare for ours, bare in pairs]
        more = [(ours - bare) * 1e6 for ours, bare in pairs]
        low, high = median_interval(ratios)
        least, most = median_interval(more)
        same = [ratio for one in found for ratio in one["same"]]
        rows.append(
            (
                name,
                len(pairs),
                f"{median(bare for _, bare in pairs) * 1e3:.3f}",
                f"{median(ours for ours, _ in pairs) * 1e3:.3f}",
                f"{median(ratios):.4f}",
                f"{low:.4f}–{high:.4f}",
                f"{median(same):.4f}",
                f"{median(more):+.1f}",
                f"{least:+.1f} to {most:+.1f}",
            )
        )
    times = ("bare ms", "ours ms", "ratio", "95 %", "A/A", "difference µs", "95 %, µs")
    title = "overhead: a step, full reporting against a bare loop, medians of ABBA blocks"
    return Table(title, ("case", "blocks", *times), rows)


def _calls(results: dict[str, list[dict[str, Any]]]) -> Table:
    calls = list(dict.fromkeys(call for found in results.values() for call in found[0]["calls"]))
    rows: list[list[str]] = []
    for call in calls:
        spent = [median(one["calls"][call] for one in found) for found in results.values()]
        rows.append([f"{call}, µs per step", *(f"{1e6 * value:.1f}" for value in spent)])
    totals = [median(sum(one["calls"].values()) for one in found) for found in results.values()]
    rows.append(["sum, µs per step", *(f"{1e6 * value:.1f}" for value in totals)])
    for part in ("reporter", "supervisor"):
        shares = [median(one[part] for one in found) for found in results.values()]
        rows.append([f"CPU of the {part}, ms per second", *(f"{1e3 * s:.2f}" for s in shares)])
    return Table("overhead: CPU time of the parts, measured directly", ("what", *results), rows)


if __name__ == "__main__":
    main()
