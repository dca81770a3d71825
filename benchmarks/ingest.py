"""Measure whether one supervisor keeps up with very many ranks.

Targets: with 1,024 ranks that each send 10 windows per second nothing is lost, the supervisor needs
less than half a core, and its memory does not grow.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.crowd import window
from benchmarks.report import ROOT, Table, publish, settled_environment
from distrain import Record, RunConfig
from distrain.runners.config.planning import plan_here
from distrain.runners.launchers import command
from distrain.runners.records.folder import create_run
from distrain.runners.supervision import supervisor

PATIENCE_S = 60.0
WARM_S = 3.0  # not measured: connections and first pages


def supervise(folder: Path, arguments: list[str]) -> int:
    """Run the supervisor of `folder` with a process of simulated ranks as its launcher."""
    crowd = [sys.executable, "-P", "-m", "benchmarks.crowd", *arguments]
    command.launcher_command = lambda config, plan: crowd
    sys.argv[1:] = [str(folder)]
    return supervisor.main()


def measure(runs: Path, ranks: int, rate: float, seconds: float) -> dict[str, Any]:
    """Run with `ranks` ranks; return CPU and memory of the supervisor and what the record lacks."""
    config = RunConfig.from_dict({"devices": f"cpu:{ranks}", "train": {"batch_size": 32 * ranks}})
    folder = create_run(runs, config, plan=plan_here(config), word="ingest")
    windows = round(seconds * rate)
    command = [sys.executable, "-m", "benchmarks.ingest", "--supervise", str(folder)]
    command += [str(ranks), str(windows), str(rate)]
    environment = {**settled_environment(), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    with Record(folder) as record:
        process = psutil.Process(record.state.supervisor_pid)
        found = _watched(process, seconds)
        found["status"] = record.status
        found["lost"], found["wrong"] = missing(record, ranks, windows)
        last = max((row["time"] for row in record.totals().values()), default=0.0)
    size = sum(path.stat().st_size for path in folder.glob("metrics.db*"))
    cores = found["cpu"] / (last - found["since"])
    return {**found, "cores": cores, "windows": ranks * windows, "bytes": size / (ranks * windows)}


def _watched(process: psutil.Process, seconds: float) -> dict[str, Any]:
    """Return CPU seconds from WARM_S to the end of the supervisor, and its memory.

    It is measured to its end and not to the last window, so that pending writes are counted.
    """
    began = time.time()
    time.sleep(min(WARM_S, seconds / 3))
    cpu = before = _cpu(process)
    since, memory = time.time(), []
    while process.is_running() and time.time() < began + seconds + PATIENCE_S:
        try:
            cpu, rss = _cpu(process), process.memory_info().rss
        except psutil.NoSuchProcess:
            break
        if rss:
            memory.append((time.time() - began, rss / 2**20))
        time.sleep(0.1)
    early = [rss for at, rss in memory if at <= seconds / 3]
    late = [rss for at, rss in memory if at <= seconds]
    return {
        "cpu": cpu - before,
        "since": since,
        "early_mb": early[-1] if early else memory[0][1],
        "late_mb": late[-1],
        "memory": memory,
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def missing(record: Record, ranks: int, windows: int) -> tuple[int, int]:
    """Return the number of missing windows, and of ranks whose sums differ from what was sent."""
    totals = record.totals()
    rows = sum(row["steps"] for row in totals.values())
    sent = {
        rank: sum(window(rank, step).loss_sum or 0.0 for step in range(1, windows + 1))
        for rank in range(ranks)
    }
    wrong = sum(totals.get(rank, {}).get("loss_sum") != sent[rank] for rank in sent)
    return ranks * windows - rows, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--rate", type=float, default=10.0, help="windows of a rank per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--supervise", nargs=4, metavar="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.supervise:
        sys.exit(supervise(Path(arguments.supervise[0]), arguments.supervise[1:]))
    if arguments.quick:
        arguments.ranks, arguments.seconds = [16], 1.0
    rows = []
    with tempfile.TemporaryDirectory(prefix="distrain-ingest-") as runs:
        for ranks in arguments.ranks:
            found = measure(Path(runs), ranks, arguments.rate, arguments.seconds)
            rows.append(_row(ranks, found, arguments.rate))
    headers = (
        *("ranks", "windows", "lost", "wrong sums", "cores", "µs per window"),
        *("MB early", "MB late", "bytes per row", "status"),
    )
    title = (
        f"ingest: a supervisor receives {arguments.rate:g} windows per second from each rank for "
        f"{arguments.seconds:g} s; memory after a third of it and at its end"
    )
    publish(Table(title, headers, rows), json_to=arguments.json)


def _row(ranks: int, found: dict[str, Any], rate: float) -> tuple[object, ...]:
    return (
        f"{ranks:,}",
        f"{found['windows']:,}",
        found["lost"],
        found["wrong"],
        f"{found['cores']:.2f}",
        f"{1e6 * found['cores'] / (ranks * rate):.0f}",
        f"{found['early_mb']:.1f}",
        f"{found['late_mb']:.1f}",
        f"{found['bytes']:.0f}",
        found["status"],
    )


if __name__ == "__main__":
    main()
