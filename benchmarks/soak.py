"""Train for a long time and measure whether anything grows, is lost or is left behind.

Four ranks train a tiny model at full rate, with loader processes, an evaluation about every second
and a checkpoint about every ten. One app watches the run all the time; another one is attached and
closed once a minute. Targets, after the first five minutes: memory of supervisor and app, and what
Python and the reporter of each rank hold, grow by at most 5 %; descriptors, threads and children
stay the same; every step, sample and evaluation that the ranks counted is in the record; nothing
is left in the temporary folder, in /dev/shm or among the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.report import ROOT, Table, publish
from benchmarks.soak_task import EVERY_S, FOLDER
from benchmarks.vitals import Growth, Vitals
from distrain import RunConfig, launch
from distrain.runners.protocol.events import Evaluation, Saved
from distrain.runners.records.database import DATABASE, open_for_reading
from distrain.runners.runs import Run
from tests.support.terminal import Terminal

STAYING, RETURNING = "app, attached all the time", "app, attached once a minute"
MOST_PERCENT = 5.0
ENDED_S = 180.0
GONE_S = 120.0  # a process that ends on a busy machine
SHARED = Path("/dev/shm")
TORCH_CACHE = "torchinductor_"  # the beginning of its name: torch keeps it for each user
"""Windows that do not begin where the one before has ended, or have no number of their own."""
GAPS = """
SELECT count(*) FROM (
  SELECT seq, step - steps AS began, lag(step, 1, 0) OVER own AS ended,
         row_number() OVER own - 1 AS number
  FROM steps WINDOW own AS (PARTITION BY rank ORDER BY seq)
) WHERE began != ended OR seq != number
"""


def configured(ranks: int, every: int, epochs: int = 1_000_000) -> RunConfig:
    """Return the config of the run, which evaluates after `every` steps (0: never)."""
    return RunConfig.from_dict(
        {
            "devices": f"cpu:{ranks}",
            "task": {"name": "benchmarks.soak_task:classification"},
            "train": {"epochs": epochs, "batch_size": 16 * ranks},
            "data": {"workers": ranks},
            "eval": {"every_epochs": 0, **({"every_steps": every} if every else {})},
            "checkpoint": {
                "every_epochs": 0,
                "keep": 2,
                **({"every_steps": 10 * every} if every else {}),
            },
        }
    )


def steps_per_second(folder: Path, ranks: int, seconds: float) -> float:
    """Return how fast the run is without evaluations."""
    with _launched(configured(ranks, 0), folder) as run:
        while not (before := _steps(run)):
            _check(run)
            time.sleep(0.5)
        began = time.monotonic()
        time.sleep(seconds)
        return (_steps(run) - before) / (time.monotonic() - began)


def _steps(run: Run) -> int:
    return min((row["steps"] for row in run.record.totals().values()), default=0)


def _check(run: Run) -> None:
    if not run.is_live:
        raise SystemExit(f"the run has ended: {run.status}, {run.reason}")


@contextmanager
def _launched(config: RunConfig, folder: Path) -> Iterator[Run]:
    (folder / "counts").mkdir(exist_ok=True)
    where = {FOLDER: str(folder / "counts"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    run = launch(config, name="soak", runs_dir=folder / "runs", cwd=str(ROOT), environment=where)
    try:
        yield run
        run.stop()
        run.wait(ENDED_S)
    finally:
        if run.is_live:
            run.stop(now=True)
            run.wait(ENDED_S)


class Watch:
    """Samples the processes of a run and of the apps that show it.

    `seen` are all processes that belonged to them at some time, `scratch` is the name of the run's
    folder for temporary files.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.samples: dict[str, list[Vitals]] = defaultdict(list)
        self.seen: set[psutil.Process] = set()
        self._apps = {name: _terminal(folder, name) for name in (STAYING, RETURNING)}
        state = run.record.state
        self.scratch = Path(state.socket.removeprefix("unix:")).parent.name
        self._supervisor = psutil.Process(state.supervisor_pid)
        self._processes = {f"rank {rank.rank}": rank.pid for rank in run.record.ranks()}
        self._processes["launcher"] = self._supervisor.children()[0].pid
        self._processes["supervisor"] = self._supervisor.pid

    def attach(self, name: str) -> None:
        self._apps[name].open(self.run.id, "--runs-dir", str(self.run.runs_dir))
        self._apps[name].until("soak")

    def detach(self, name: str) -> None:
        app = self._apps[name].app()
        self._apps[name].press("C-q")
        app.wait(GONE_S)

    def sample(self) -> None:
        _check(self.run)
        for name, pid in self._processes.items():
            self._sample(name, psutil.Process(pid))
        self._sample(STAYING, self._apps[STAYING].app())

    def sample_returning(self) -> None:
        self._sample(RETURNING, self._apps[RETURNING].app())

    def _sample(self, name: str, process: psutil.Process) -> None:
        self.seen |= {process, *process.children(recursive=True)}
        self.samples[name].append(Vitals.of(process))

    def close(self) -> None:
        for terminal in self._apps.values():
            terminal.close()


def _terminal(folder: Path, name: str) -> Terminal:
    own = folder / name.replace(" ", "-").replace(",", "")
    own.mkdir()
    return Terminal(own)


def watch(run: Run, folder: Path, options: argparse.Namespace) -> Watch:
    """Watch a run for `options.minutes`; print a line for each minute."""
    while not _steps(run):
        _check(run)
        time.sleep(0.5)
    watching = Watch(run, folder)
    end = time.monotonic() + 60 * options.minutes
    minute = 0
    try:
        watching.attach(STAYING)
        while (left := end - time.monotonic()) > 0:
            watching.attach(RETURNING)
            detach = time.monotonic() + min(options.attached, left)
            while time.monotonic() < detach:
                watching.sample()
                time.sleep(min(options.every, max(0.1, detach - time.monotonic())))
            watching.sample_returning()
            watching.detach(RETURNING)
            minute += 1
            _print_progress(minute, watching)
        watching.detach(STAYING)
    finally:
        watching.close()
    return watching


def _print_progress(minute: int, watching: Watch) -> None:
    held = [f"{name} {samples[-1].uss:.1f}" for name, samples in watching.samples.items()]
    steps = f"{_steps(watching.run):,} steps"
    print(f"{time.strftime('%H:%M:%S')} attached {minute}: {steps}; MB: {', '.join(held)}")
    sys.stdout.flush()


# --- what was found ------------------------------------------------------------------------------


def growth(watching: Watch, settled: float) -> Table:
    rows = []
    for name, samples in watching.samples.items():
        held = {
            kind: Growth.of([(each.time, getattr(each, kind)) for each in samples], settled)
            for kind in ("uss", "rss")
        }
        uss, rss = held["uss"], held["rss"]
        if uss is None or rss is None:
            continue
        later = [each for each in samples if each.time >= settled]
        counts = [_flat(later, kind) for kind in ("descriptors", "threads", "children")]
        is_ours = name.startswith(("app", "supervisor"))
        memory = "" if not is_ours else _yes(uss.percent <= MOST_PERCENT)
        rows.append((name, len(later), *_cells(uss), f"{rss.percent:+.1f}", *counts, memory))
    headers = (
        *("process", "samples", "MB early", "MB late", "growth %", "% per hour", "RSS growth %"),
        *("descriptors", "threads", "children", f"≤ {MOST_PERCENT:g} %"),
    )
    return Table("soak: private memory (USS), first and last fifth, medians", headers, rows)


def _cells(found: Growth) -> tuple[str, ...]:
    return (
        f"{found.early:.1f}",
        f"{found.late:.1f}",
        f"{found.percent:+.1f}",
        f"{found.hourly:+.1f}",
    )


def _flat(samples: list[Vitals], kind: str) -> str:
    """Return medians of the first and the last fifth, and the most if it was more."""
    values = [getattr(each, kind) for each in samples]
    fifth = max(1, len(values) // 5)
    early, late = median(values[:fifth]), median(values[-fifth:])
    text = f"{early:g}" if early == late else f"{early:g} → {late:g}"
    return text if max(values) <= max(early, late) else f"{text} (once {max(values)})"


def counts_of(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """Return what each rank has written about itself."""
    return {
        int(path.stem.removeprefix("rank-")): [*map(json.loads, path.read_text().splitlines())]
        for path in sorted((folder / "counts").glob("rank-*.ndjson"))
    }


def reporters(counts: dict[int, list[dict[str, Any]]], settled: float) -> Table:
    rows = []
    for rank, lines in counts.items():
        held, found = (
            Growth.of([(each["time"], each[kind]) for each in lines], settled)
            for kind in ("reporter", "blocks")
        )
        if held is not None and found is not None:
            percent = max(held.percent, found.percent)
            rows.append((rank, *_whole(held), *_whole(found), _yes(percent <= MOST_PERCENT)))
    headers = (
        *("rank", "bytes early", "bytes late", "growth %"),
        *("blocks early", "blocks late", "growth %", f"≤ {MOST_PERCENT:g} %"),
    )
    title = "soak: bytes of a rank's reporter, and memory blocks that Python holds in the rank"
    return Table(title, headers, rows)


def _whole(found: Growth) -> tuple[str, ...]:
    return f"{found.early:,.0f}", f"{found.late:,.0f}", f"{found.percent:+.2f}"


def lost(run: Run, counts: dict[int, list[dict[str, Any]]]) -> Table:
    """Compare the record with what the ranks have counted themselves."""
    record = run.record
    totals = record.totals()
    last = {rank: lines[-1] for rank, lines in counts.items()}
    rows = [
        (f"{name} of rank {rank}", counted[name], round(totals[rank][name]))
        for rank, counted in last.items()
        for name in ("steps", "samples")
    ]
    events = [event for _, event in record.events()]
    evaluated = sum(event.samples for event in events if isinstance(event, Evaluation))
    rows.append(("evaluated samples", sum(each["evaluated"] for each in last.values()), evaluated))
    db = open_for_reading(run.dir / DATABASE)
    rows.append(("gaps between windows", 0, db.execute(GAPS).fetchone()[0]))
    db.close()
    cells = [
        (what, f"{counted:,}", f"{recorded:,}", _yes(counted == recorded))
        for what, counted, recorded in rows
    ]
    seen = [(kind, sum(isinstance(e, kind) for e in events)) for kind in (Evaluation, Saved)]
    noted = ", ".join(f"{kind.__name__.lower()} {number:,}" for kind, number in seen)
    title = f"soak: what the ranks counted, and the record (messages: {noted})"
    return Table(title, ("what", "ranks", "record", "equal"), cells)


def left_behind(run: Run, watching: Watch, temporary: Path, shared: set[str]) -> Table:
    deadline = time.monotonic() + GONE_S
    while (alive := [each for each in watching.seen if each.is_running()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.2)
    ours = {str(process.pid) for process in watching.seen}
    fresh = _shared() - shared
    kept = [name for name in fresh if watching.scratch in name or ours & {*name.split("_")}]
    files = [f.name for f in temporary.iterdir() if not f.name.startswith(TORCH_CACHE)]
    rows = [
        ("processes", len(watching.seen), ", ".join(str(each.pid) for each in alive)),
        ("files in /dev/shm", len(fresh), ", ".join(kept)),
        ("temporary files", len(files), ", ".join(files)),
        ("run.json's end", run.status, "" if run.status == "stopped" else run.reason),
    ]
    cells = [(what, seen, left or "none", _yes(not left)) for what, seen, left in rows]
    return Table("soak: left behind", ("what", "seen", "left", "holds"), cells)


def _shared() -> set[str]:
    return {path.name for path in SHARED.iterdir()} if SHARED.exists() else set()


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=5.0, help="minutes not counted")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between samples")
    parser.add_argument("--attached", type=float, default=58.0, help="seconds of one visit")
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    calibration = 10.0
    if options.quick:
        options.minutes, options.settle, options.ranks = 0.3, 0.05, 2
        options.every, options.attached, calibration = 1.0, 8.0, 2.0
    if shutil.which("tmux") is None:
        raise SystemExit("this needs tmux, in which the app is attached")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    temporary = folder / "tmp"
    temporary.mkdir()
    os.environ |= {"TMPDIR": str(temporary), "DISTRAIN_CLAIMS_DIR": str(folder / "claims")}
    try:
        tables = measure(folder, temporary, calibration, options)
        publish(*tables, json_to=options.json)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def measure(
    folder: Path, temporary: Path, calibration: float, options: argparse.Namespace
) -> list[Table]:
    shared = _shared()
    rate = steps_per_second(folder, options.ranks, calibration)
    shutil.rmtree(folder / "counts")
    print(f"{rate:.0f} steps per second without evaluations", flush=True)
    with _launched(configured(options.ranks, max(1, round(rate))), folder) as run:
        began = time.time()
        watching = watch(run, folder, options)
    settled = began + 60 * options.settle
    counts = counts_of(folder)
    return [
        growth(watching, settled),
        reporters(counts, settled),
        lost(run, counts),
        left_behind(run, watching, temporary, shared),
    ]


if __name__ == "__main__":
    main()
