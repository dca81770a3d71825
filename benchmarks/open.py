"""Measure how long a run page takes to read from a short and from a very long record.

Claim: ten million step rows give all curves of a run page in 0.2 s and 100 MB, and a hundred
times more rows cost at most 1.5 times more.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Table, publish
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import PHASES, Evaluation, Metric, Window
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.timeseries.run_curve import RANK_COLUMNS, over_ranks
from distrain.runners.records.writer import RecordWriter

RANKS = 8
# 1,024,000 rows make 2,000 points a rank, the most there are: 1 stands for 64 rows.
ROWS = [100_000, 1_024_000, 10_000_000]
STEPS_PER_EPOCH = 1000
PAGE = (
    *("loss", "loss_min", "loss_max", "lr", "samples_per_s"),
    *(f"{phase}_per_step" for phase in PHASES),
)


def build(runs: Path, rows: int) -> Path:
    """Write a record of `rows` windows of one step, from 8 ranks, as the supervisor would."""
    folder = create_run(runs, RunConfig(), word=f"rows-{rows}")
    writer = RecordWriter(folder)
    for step in range(1, rows // RANKS + 1):
        for rank in range(RANKS):
            writer.add(_window(rank, step))
        if step % STEPS_PER_EPOCH == 0:
            writer.add(_evaluation(step))
        if step % 5000 == 0:
            writer.commit()
    writer.set_state(status="completed")
    writer.close()
    return folder


def _window(rank: int, step: int) -> Window:
    loss = 2.3 / (1 + step / 5000) + (step * 7919 + rank) % 101 / 500
    return Window(
        time=1.8e9 + step * 0.1,
        rank=rank,
        epoch=step // STEPS_PER_EPOCH,
        step=step,
        steps=1,
        samples=32,
        loss_sum=32 * loss,
        loss_min=loss,
        loss_max=loss,
        lr=0.1,
        seconds=0.1,
        data=0.01,
        forward=0.02,
        backward=0.04,
        comm=0.02,
        optimizer=0.005,
        warmup=step <= 10,
    )


def _evaluation(step: int) -> Evaluation:
    metrics = {"loss": Metric(500.0, 1000), "top1": Metric(900.0, 1000)}
    epoch = step // STEPS_PER_EPOCH
    time = 1.8e9 + step * 0.1
    return Evaluation(time=time, epoch=epoch, step=step, samples=1000, seconds=1.0, metrics=metrics)


def measure(folder: Path) -> dict[str, Any]:
    """Read a page's curves in this process; return seconds, points and peak memory in MB."""
    begin = time.perf_counter()
    with Record(folder) as record:
        ranks = record.curves(columns=(*PAGE, *RANK_COLUMNS))
        overall = over_ranks(ranks.values())
        evaluations = record.evaluations()
    seconds = time.perf_counter() - begin
    assert ranks.keys() == set(range(RANKS))
    assert len(overall) > 0
    assert evaluations
    # Linux counts in KiB, macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return {"seconds": seconds, "points": max(map(len, ranks.values())), "memory_mb": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="distrain-open-") as runs:
        folders = {}
        for rows in arguments.rows:
            begin = time.perf_counter()
            folders[rows] = build(Path(runs), rows)
            seconds = time.perf_counter() - begin
            print(f"{rows:,} rows written in {seconds:.0f} s", file=sys.stderr)
        results: dict[int, list[dict[str, Any]]] = {rows: [] for rows in folders}
        for _ in range(arguments.repeats):
            for rows, folder in folders.items():
                results[rows].append(_measure_apart(folder))
        _publish(results, arguments.json)


def _measure_apart(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.open", "--measure", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def _publish(results: dict[int, list[dict[str, Any]]], json_to: Path | None) -> None:
    base = median(result["seconds"] for result in next(iter(results.values())))
    lines = []
    for rows, found in results.items():
        seconds = sorted(result["seconds"] for result in found)
        lines.append(
            (
                f"{rows:,}",
                found[0]["points"],
                f"{median(seconds) * 1e3:.0f}",
                f"{seconds[0] * 1e3:.0f}–{seconds[-1] * 1e3:.0f}",
                f"{median(seconds) / base:.2f}",
                f"{median(result['memory_mb'] for result in found):.0f}",
            )
        )
    headers = ("step rows", "points", "ms", "range", "ratio", "peak MB")
    title = f"open: all curves of a run page, {RANKS} ranks, median of {len(found)} fresh processes"
    publish(Table(title, headers, lines), json_to=json_to)


if __name__ == "__main__":
    main()
