"""Compare the results of a bench with those of plain PyTorch scripts timed by hand.

Rounds of both are interleaved: a round of `by_hand`, then one of the bench's measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.by_hand import ONE_PROCESS
from benchmarks.report import ROOT, Table, publish, settled_environment
from distrain.runners.analysis.interval import Interval
from distrain.runners.analysis.statistics import median_interval, paired_ratio
from distrain.runners.bench import candidates, make
from distrain.runners.bench.measurement import measure
from distrain.runners.system.host import count_cores

CANDIDATES = ("single", "dp", "allreduce", "ddp", "ddp-spawn", "amp")
RANKS = 2


def by_hand(name: str, seconds: float) -> float:
    """Return the samples/s of a script that does not use distrain."""
    ranks = 1 if name in ONE_PROCESS else RANKS
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        script = ["-m", "benchmarks.by_hand", name, str(seconds), str(out)]
        command = [sys.executable, *script]
        if name not in (*ONE_PROCESS, "ddp-spawn"):
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += [f"--nproc-per-node={ranks}", *script]
        environment = settled_environment() | {
            "OMP_NUM_THREADS": str(max(1, count_cores() // ranks)),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        return float(json.loads(out.read_text()))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    definition = make(candidates(arguments.candidates, {}), {"seconds": arguments.seconds})
    ours: dict[str, list[float]] = {name: [] for name in arguments.candidates}
    hand: dict[str, list[float]] = {name: [] for name in arguments.candidates}
    with tempfile.TemporaryDirectory(prefix="distrain-agreement-") as folder:
        for number in range(1, arguments.rounds + 1):
            turns = [(name, which) for name in arguments.candidates for which in (ours, hand)]
            random.Random(number).shuffle(turns)
            for name, which in turns:
                if which is hand:
                    rate = by_hand(name, arguments.seconds)
                else:
                    rate = measured(definition, name, number, Path(folder))
                which[name].append(rate)
                print(f"round {number}: {name}: {rate:,.0f} samples/s", file=sys.stderr)
    publish(*tables(arguments.candidates, ours, hand), json_to=arguments.json)


def measured(definition: object, name: str, number: int, folder: Path) -> float:
    return measure(
        definition,  # type: ignore[arg-type]
        name,
        number,
        folder=folder,
        cwd=os.getcwd(),
        queue=False,
        environment={},
        is_stopping=lambda: False,
        on_launch=lambda _: None,
    ).rate


def tables(
    names: list[str], ours: dict[str, list[float]], hand: dict[str, list[float]]
) -> list[Table]:
    base, others = names[0], names[1:]
    rates = [
        [name, shown(median_interval(ours[name])), shown(median_interval(hand[name]))]
        for name in names
    ]
    ratios = []
    for name in others:
        found = [paired_ratio(each[name], each[base], len(others)) for each in (ours, hand)]
        ratios.append([name, *map(shown, found), agreement(*found)])
    return [
        Table("samples/s", ["", "distrain bench", "plain PyTorch"], rates),
        Table(f"× {base}", ["", "distrain bench", "plain PyTorch", "results"], ratios),
    ]


def shown(interval: Interval) -> str:
    digits = 0 if interval.value >= 100 else 3
    value, low, high = (f"{x:,.{digits}f}" for x in (interval.value, interval.low, interval.high))
    return f"{value} ({low}–{high})"


def result(ratio: Interval) -> str:
    return "no difference" if ratio.contains(1) else "faster" if ratio.value > 1 else "slower"


def agreement(ours: Interval, hand: Interval) -> str:
    one, other = result(ours), result(hand)
    return f"both {one}" if one == other else f"{one} / {other}"


if __name__ == "__main__":
    main()
