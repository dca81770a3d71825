"""Measure the time to the first step, and the memory of the processes that are not ranks.

Targets: `distrain run`, of a preset and of a script, reaches the first step of every rank at most
0.5 s later than plain `torchrun` with the script, which trains the same; supervisor and viewer use
at most 60 MB; `import distrain` takes at most 0.15 s and loads no torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from benchmarks.first_step import FOLDER
from benchmarks.report import ROOT, Table, median_interval, publish, settled_environment
from distrain import find

RANKS = 2
SHORT = 3  # steps
LONG = 1_000_000  # steps: until the run is stopped
PATIENCE_S = 120.0
OURS, SCRIPT, TORCHRUN = "a preset", "a script", "torchrun"


def ours(runs: Path, steps: int) -> list[str]:
    changes = {
        "task.name": "benchmarks.first_step:classification",
        "devices": f"cpu:{RANKS}",
        "train.epochs": LONG,
        "train.max_steps": steps,
        "eval.every_epochs": 0,
        "checkpoint.every_epochs": 0,
        "checkpoint.keep": 0,
    }
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "distrain", "run", "ddp", *sets, "--runs-dir", str(runs)]


def bare(steps: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    return [sys.executable, *launcher, *script(steps)]


def script(steps: int) -> list[str]:
    return ["-m", "benchmarks.bare", str(steps)]


def script_by_us(runs: Path) -> list[str]:
    options = ["--devices", f"cpu:{RANKS}", "--runs-dir", str(runs)]
    return [sys.executable, "-m", "distrain", "run", *options, *script(SHORT)]


@contextmanager
def started(command: list[str]) -> Iterator[tuple[psutil.Popen, float]]:
    """Yield a process and the seconds until the last rank finished its first step."""
    with tempfile.TemporaryDirectory(prefix="distrain-startup-") as folder:
        threads = {"OMP_NUM_THREADS": str(max(1, (psutil.cpu_count() or 1) // RANKS))}
        environment = {**settled_environment(), **threads, FOLDER: folder}
        began = time.time()
        process = psutil.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        marks = [Path(folder) / str(rank) for rank in range(RANKS)]
        try:
            while not all(path.exists() for path in marks):
                if process.poll() is not None or time.time() - began > PATIENCE_S:
                    process.kill()
                    raise SystemExit(f"{command} made no step:\n{process.stderr.read()}")
                time.sleep(0.05)
            yield process, max(float(path.read_text()) for path in marks) - began
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=PATIENCE_S)


def first_steps(rounds: int, runs: Path) -> dict[str, list[float]]:
    """Return the seconds of all commands, alternating, in reversed order every second round."""
    commands = {OURS: ours(runs, SHORT), SCRIPT: script_by_us(runs), TORCHRUN: bare(SHORT)}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    order = list(commands)
    for turn in range(rounds):
        for name in order:
            with started(commands[name]) as (process, waited):
                process.wait(PATIENCE_S)
            seconds[name].append(waited)
            print(f"round {turn + 1}, {name}: {waited:.2f} s", file=sys.stderr)
        order.reverse()
    return seconds


def memory(runs: Path, settle_s: float) -> dict[str, float]:
    """Return the memory in MB (PSS) of the processes that are not ranks, while a run trains."""
    found: dict[str, float] = {}
    with started(ours(runs, LONG)) as (viewer, _):
        time.sleep(settle_s)
        run = find("latest", runs)
        supervisor = psutil.Process(run.record.state.supervisor_pid)
        found["supervisor"] = _pss(supervisor)
        found["torchrun's agent under the supervisor"] = _pss(supervisor.children()[0])
        found["viewer (`distrain run`)"] = _pss(viewer)
        run.stop(now=True)
        viewer.wait(PATIENCE_S)
    with started(bare(LONG)) as (agent, _):
        time.sleep(settle_s)
        found["bare torchrun's agent"] = _pss(agent)
    return found


def _pss(process: psutil.Process) -> float:
    full = process.memory_full_info()
    return float(getattr(full, "pss", full.uss)) / 2**20


IMPORT = (
    "import sys; import distrain; sys.exit(any(m in sys.modules for m in ('torch', 'textual')))"
)


def imports(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a fresh interpreter with and without `import distrain`."""
    seconds: dict[str, list[float]] = {IMPORT: [], "pass": []}
    for _ in range(rounds):
        for code, found in seconds.items():
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", code], env=settled_environment(), cwd=ROOT, check=True
            )
            found.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before memory is read")
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.settle = 1, 0.5
    with tempfile.TemporaryDirectory(prefix="distrain-startup-") as folder:
        importing = imports(max(3, 2 * arguments.rounds))
        seconds = first_steps(arguments.rounds, Path(folder) / "steps")
        held = memory(Path(folder) / "memory", arguments.settle)
    publish(_times(seconds, importing), _memory(held), json_to=arguments.json)


def _times(seconds: dict[str, list[float]], importing: dict[str, list[float]]) -> Table:
    rows = []
    for what, (with_us, without), target in (
        (f"first step of {OURS}", (seconds[OURS], seconds[TORCHRUN]), "+0.5 s"),
        (f"first step of {SCRIPT}", (seconds[SCRIPT], seconds[TORCHRUN]), "+0.5 s"),
        ("import distrain", (importing[IMPORT], importing["pass"]), "+0.15 s"),
    ):
        more = [a - b for a, b in zip(with_us, without, strict=True)]
        low, high = median_interval(more)
        a, b = median(with_us), median(without)
        interval = f"{low:+.3f} to {high:+.3f}"
        rows.append(
            (what, f"{a:.3f}", f"{b:.3f}", f"{median(more):+.3f}", interval, f"{a / b:.2f}", target)
        )
    title = (
        f"startup: seconds, median of {len(seconds[TORCHRUN])} alternating rounds; plain: "
        f"torchrun with {RANKS} ranks, an interpreter that imports nothing"
    )
    headers = ("what", "distrain", "plain", "difference", "95 %", "ratio", "target")
    return Table(title, headers, rows)


def _memory(held: dict[str, float]) -> Table:
    ours = held["supervisor"] + held["viewer (`distrain run`)"]
    rows = [(name, f"{size:.0f}", "") for name, size in held.items()]
    rows.append(("supervisor and viewer together", f"{ours:.0f}", "60"))
    title = "startup: memory of the processes that are not ranks, while a run trains"
    return Table(title, ("process", "MB (PSS)", "target"), rows)


if __name__ == "__main__":
    main()
