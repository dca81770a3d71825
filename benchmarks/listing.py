"""Measure how long `distrain runs` takes for many ended runs, more than for an empty folder.

Target: 5,000 runs take at most 0.5 s more. The CPU time is comparable on a busy machine too. What
the app takes for as many is measured by `python -m benchmarks.tui --only paint --runs 5000`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.report import ROOT, Table, publish, settled_environment
from benchmarks.simulation import ended_runs


def seconds_of(runs: Path) -> tuple[float, float]:
    """Return the seconds, and those of CPU, that one `distrain runs` takes."""
    command = [sys.executable, "-m", "distrain", "runs", "--runs-dir", str(runs)]
    before, began = _cpu(), time.perf_counter()
    subprocess.run(command, env=settled_environment(), cwd=ROOT, capture_output=True, check=True)
    return time.perf_counter() - began, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[300, 5000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distrain-listing-") as folder:
        folders = {count: Path(folder) / str(count) for count in (0, *options.runs)}
        for count, runs in folders.items():
            runs.mkdir()
            if count:
                ended_runs(runs, count)
        found: dict[int, list[tuple[float, float]]] = {count: [] for count in folders}
        for turn in range(-1, options.rounds):  # the first one compiles, and is not counted
            for count, runs in folders.items():
                taken = seconds_of(runs)
                if turn >= 0:
                    found[count].append(taken)
    start = median(cpu for _, cpu in found[0])
    rows = []
    for count, taken in found.items():
        wall, cpu = (median(values) for values in zip(*taken, strict=True))
        rows.append((f"{count:,}", f"{wall:.3f}", f"{cpu:.3f}", f"{cpu - start:+.3f}"))
    title = f"listing: `distrain runs`, seconds, median of {options.rounds} alternating rounds"
    headers = ("runs", "s", "CPU s", "CPU s more than for none")
    publish(Table(title, headers, rows), json_to=options.json)


if __name__ == "__main__":
    main()
