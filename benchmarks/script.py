"""Measure what hooks, and `track` and `log`, cost a script per step, in turns within one process.

Targets: a step of 0.5 to 1 ms takes at most 1.03 times as long, the CNN of PyTorch's MNIST tutorial
at most 1.01 times; the shortest step has none. The row "A/A" is the same comparison of bare turns
with each other, which should be 1. The lowest tenth of the steps is disturbed least by other
programs, but has no step that ends a window.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import ROOT, QuietRatio, Table, lower_quartile, publish
from benchmarks.script_loop import CASES
from distrain import RunConfig, launch

KINDS = ("A/A", "automatic", "track and log")
TARGETS = {"tiny": "≤ 1.03", "cnn": "≤ 1.01"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each case")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [row for case in arguments.cases for row in rows_of(case, arguments.seconds)]
    headers = [
        "case",
        "script",
        "turns",
        "ms",
        "bare ms",
        "ratio",
        "95 %",
        "target",
        "lowest tenth",
    ]
    publish(
        Table("script: time per step, lower quartiles of turns", headers, rows),
        json_to=arguments.json,
    )


def measure(case: str, seconds: float) -> list[list[tuple[float, float]]]:
    """Return the seconds per step of each turn, bare and as KINDS: mean and lowest tenth."""
    with tempfile.TemporaryDirectory(prefix="distrain-script-") as folder:
        out = Path(folder) / "turns.json"
        script = {"module": "benchmarks.script_loop", "args": [case, str(seconds), str(out)]}
        config = RunConfig.from_dict({"script": {**script, "cwd": str(ROOT)}})
        summary = launch(config, runs_dir=folder).wait()
        if summary["status"] != "completed":
            raise SystemExit(f"the script failed: {summary}")
        turns: list[list[tuple[float, float]]] = json.loads(out.read_text())
        return turns


def rows_of(case: str, seconds: float) -> Iterator[list[object]]:
    turns = measure(case, seconds)
    bare, *kinds = zip(*turns, strict=True)
    for kind, ours in zip(KINDS, kinds, strict=True):
        pairs = [*zip(ours, bare, strict=True)]
        means = [(one[0], other[0]) for one, other in pairs]
        lowest = [(one[1], other[1]) for one, other in pairs]
        yield [
            case,
            kind,
            len(turns),
            *(f"{1000 * lower_quartile(side):.3f}" for side in zip(*means, strict=True)),
            *QuietRatio.of(means).cells(),
            "" if kind == "A/A" else TARGETS.get(case, ""),
            QuietRatio.of(lowest).cells()[0],
        ]


if __name__ == "__main__":
    main()
