"""Records of several sizes, read by turns, each time in a fresh process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import Table, publish

Figures = dict[str, float]


def run(
    module: str,
    description: str | None,
    sizes: Sequence[int],
    build: Callable[[Path, int], Path],
    measure: Callable[[Path], Figures],
    tabulate: Callable[[Mapping[int, list[Figures]]], Table],
) -> None:
    """Run a benchmark: the command line of `module`.

    `build` writes a record of a size into a folder of runs and returns its folder; `measure` reads
    it. `tabulate` gets the figures of each size.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="distrain-open-") as runs:
        folders = {}
        for size in arguments.sizes:
            begin = time.perf_counter()
            folders[size] = build(Path(runs), size)
            print(f"{size:,} written in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        found: dict[int, list[Figures]] = {size: [] for size in folders}
        for _ in range(arguments.repeats):
            for size, folder in folders.items():
                found[size].append(_measure_apart(module, folder))
        publish(tabulate(found), json_to=arguments.json)


def _measure_apart(module: str, folder: Path) -> Figures:
    command = [sys.executable, "-m", module, "--measure", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: Figures = json.loads(answer.stdout)
    return figures


def in_milliseconds(seconds: Sequence[float]) -> tuple[str, str]:
    """Return the median and the range of durations."""
    return f"{median(seconds) * 1e3:.0f}", f"{min(seconds) * 1e3:.0f}–{max(seconds) * 1e3:.0f}"
