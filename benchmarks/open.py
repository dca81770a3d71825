"""Measure how long a run page takes to read from a short and from a very long record.

Claim: ten million step rows give all curves of a run page in 0.2 s and 100 MB, and a hundred
times more rows cost at most 1.5 times more.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.fresh_reads import Figures, in_milliseconds, run
from benchmarks.report import Table
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


def measure(folder: Path) -> Figures:
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


def tabulate(found: Mapping[int, list[Figures]]) -> Table:
    base = median(each["seconds"] for each in next(iter(found.values())))
    lines = []
    for rows, figures in found.items():
        seconds = [each["seconds"] for each in figures]
        lines.append(
            (
                f"{rows:,}",
                figures[0]["points"],
                *in_milliseconds(seconds),
                f"{median(seconds) / base:.2f}",
                f"{median(each['memory_mb'] for each in figures):.0f}",
            )
        )
    headers = ("step rows", "points", "ms", "range", "ratio", "peak MB")
    processes = f"median of {len(figures)} fresh processes"
    return Table(f"open: all curves of a run page, {RANKS} ranks, {processes}", headers, lines)


if __name__ == "__main__":
    run("benchmarks.open", __doc__, ROWS, build, measure, tabulate)
