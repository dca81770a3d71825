"""Measure what `track` and `log` cost a script per step, in turns within one process.

Targets: a step of half a millisecond takes at most 1.03 times as long, the CNN of PyTorch's MNIST
tutorial at most 1.01 times. The column "A/A" is the same comparison of the bare turns with each
other, which should be 1.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.report import ROOT, Table, median_interval, publish
from benchmarks.script_loop import CASES
from distrain import RunConfig, launch

TARGETS = {"tiny": 1.03, "cnn": 1.01}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each case")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [row(case, measure(case, arguments.seconds)) for case in arguments.cases]
    headers = ["case", "turns", "ms", "with calls", "ratio", "95 %", "A/A", "target"]
    publish(Table("script: time per step", headers, rows), json_to=arguments.json)


def measure(case: str, seconds: float) -> list[tuple[float, float]]:
    """Return the seconds per step of each turn: bare, and with distrain's calls."""
    with tempfile.TemporaryDirectory(prefix="distrain-script-") as folder:
        out = Path(folder) / "turns.json"
        script = {"module": "benchmarks.script_loop", "args": [case, str(seconds), str(out)]}
        config = RunConfig.from_dict({"script": {**script, "cwd": str(ROOT)}})
        summary = launch(config, runs_dir=folder).wait()
        if summary["status"] != "completed":
            raise SystemExit(f"the script failed: {summary}")
        return [(bare, called) for bare, called in json.loads(out.read_text())]


def row(case: str, turns: list[tuple[float, float]]) -> list[object]:
    ratios = [called / bare for bare, called in turns]
    low, high = median_interval(ratios)
    bare = [each for each, _ in turns]
    same = median(later / earlier for earlier, later in pairwise(bare))
    return [
        case,
        len(turns),
        f"{1000 * median(bare):.3f}",
        f"{1000 * median(called for _, called in turns):.3f}",
        f"{median(ratios):.4f}",
        f"{low:.4f}–{high:.4f}",
        f"{same:.4f}",
        f"≤ {TARGETS[case]}",
    ]


if __name__ == "__main__":
    main()
