"""Measure an unchanged script under distrain and under TraceML, each next to a bare `python`.

The target is at least 0.97 of the bare script's speed with a step of 0.5 to 1 ms. TraceML needs an
environment of its own with the same torch: `--traceml` is its folder. Without it there is no row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import (
    ROOT,
    QuietRatio,
    Table,
    lower_quartile,
    publish,
    settled_environment,
)

LOOP = str(ROOT / "benchmarks" / "peer_loop.py")
BARE, AGAIN, OURS, TRACEML = "python", "python again", "distrain run", "traceml run"


def commands(seconds: float, out: Path, traceml: Path | None) -> dict[str, list[str]]:
    script = [LOOP, str(seconds), str(out)]
    runs = ["--runs-dir", str(out.parent / "runs")]
    found = {
        BARE: [sys.executable, *script],
        AGAIN: [sys.executable, *script],
        OURS: [sys.executable, "-m", "distrain", "run", *runs, *script],
    }
    if traceml:
        options = ["--logs-dir", str(out.parent / "traceml")]
        program, *arguments = script
        given = ["--args", *arguments, "--traceml"]
        found[TRACEML] = [str(traceml / "bin" / "traceml"), "run", program, *options, *given]
    return found


def measure(rounds: int, seconds: float, traceml: Path | None) -> dict[str, list[float]]:
    """Return the seconds per step of each command, alternating."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="distrain-peers-") as folder:
        out = Path(folder) / "seconds.json"
        order = [*commands(seconds, out, traceml).items()]
        for _ in range(rounds):
            for name, command in order:
                environment = {**settled_environment(), "OMP_NUM_THREADS": "1"}
                subprocess.run(
                    command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL
                )
                found.setdefault(name, []).append(json.loads(out.read_text()))
                out.unlink()
            order.reverse()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each run")
    parser.add_argument("--traceml", type=Path, help="folder of an environment with traceml-ai")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments.rounds, arguments.seconds, arguments.traceml)
    rows = []
    for name, values in found.items():
        if name == BARE:
            continue
        speed = QuietRatio.of([*zip(found[BARE], values, strict=True)])
        target = "≥ 0.97" if name == OURS else ""
        times = [f"{1000 * lower_quartile(each):.3f}" for each in (values, found[BARE])]
        rows.append([name, *times, *speed.cells(), target])
    headers = ("command", "ms", "bare ms", "speed", "95 %", "target")
    title = f"peers: speed of an unchanged script, {arguments.rounds} rounds of processes"
    publish(Table(title, headers, rows), json_to=arguments.json)


if __name__ == "__main__":
    main()
