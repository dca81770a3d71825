"""Measure what hooks, and `track` and `log`, cost a script per step, in turns within one process.

Targets: a step of 0.5 to 1 ms takes at most 1.03 times as long, the CNN of PyTorch's MNIST tutorial
at most 1.01 times; the shortest step has none. The row "A/A" is the same comparison of bare turns
with each other, which should be 1.
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
    headers = ["case", "script", "turns", "ms", "bare ms", "ratio", "95 %", "target"]
    publish(
        Table("script: time per step, lower quartiles of turns", headers, rows),
        json_to=arguments.json,
    )


def measure(case: str, seconds: float) -> list[list[float]]:
    """Return the seconds per step of each turn: bare, and as KINDS."""
    with tempfile.TemporaryDirectory(prefix="distrain-script-") as folder:
        out = Path(folder) / "turns.json"
        script = {"module": "benchmarks.script_loop", "args": [case, str(seconds), str(out)]}
        config = RunConfig.from_dict({"script": {**script, "cwd": str(ROOT)}})
        summary = launch(config, runs_dir=folder).wait()
        if summary["status"] != "completed":
            raise SystemExit(f"the script failed: {summary}")
        turns: list[list[float]] = json.loads(out.read_text())
        return turns


def rows_of(case: str, seconds: float) -> Iterator[list[object]]:
    turns = measure(case, seconds)
    bare = lower_quartile([turn[0] for turn in turns])
    for index, kind in enumerate(KINDS, 1):
        found = QuietRatio.of([(turn[index], turn[0]) for turn in turns])
        yield [
            case,
            kind,
            len(turns),
            f"{1000 * lower_quartile([turn[index] for turn in turns]):.3f}",
            f"{1000 * bare:.3f}",
            *found.cells(),
            "" if kind == "A/A" else TARGETS.get(case, ""),
        ]


if __name__ == "__main__":
    main()
