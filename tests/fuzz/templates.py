"""Whole records and benches, which the target `records` damages copies of."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from distrain.runners.protocol.events import (
    Attempt,
    Exited,
    Failure,
    Frame,
    GpuSample,
    HostSample,
    Job,
    Notice,
    RankSample,
    Saved,
    ScriptSettings,
    Stacks,
    ThreadStack,
)
from distrain.runners.records.journal import JournalWriter
from distrain.runners.records.logs import log_path
from distrain.runners.records.reader import Record
from distrain.runners.records.stacks import append_stacks
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.records.state import RunError
from tests.support.benches import make_bench
from tests.support.records import RunBuilder, make_window

PROVENANCE = {
    "cwd": "/work",
    "git": {"commit": "0" * 40, "branch": "main", "dirty": True, "diff_sha256": "0" * 64},
    "versions": {"torch": "2.6"},
    "host": {"name": "node1", "cpu": "x86", "cores": 2, "threads": 2, "memory": 2**30},
    "environment": {"OMP_NUM_THREADS": "1"},
}


def _training(folder: Path) -> Path:
    """A completed run with everything that distrain's own loop records."""
    run = RunBuilder(folder, "training", ago=100).steps(20).evaluation(top1=0.5, loss=1.5)
    run.steps(20).evaluation(top1=0.75, loss=1.0)
    now = run.now
    run.writer.add(Saved(time=now, epoch=4, step=40, path="step", seconds=0.1, bytes=9, best=True))
    run.writer.add(Notice(time=now, text="a notice", rank=1))
    run.writer.add(HostSample(time=now, cpu=50.0, memory_used=1.0, memory_total=2.0, load=1.0))
    run.writer.add(GpuSample(time=now, gpu=0, uuid="GPU-1", name="A", processes={7: 1}))
    run.writer.add(RankSample(time=now, rank=0, cpu=99.0, rss=1e8, processes=1))
    run.end("completed", reason="all 4 epochs done", provenance=PROVENANCE)
    run.note(name="mine", notes="one\ntwo", tags=["a", "b"])
    return run.dir


def _failed(folder: Path) -> Path:
    """A run of two hosts as a job, which was restarted and has failed; with a journal."""
    run = RunBuilder(folder, "failed", ago=100, hosts=["node1", "node2"]).steps(12)
    now = run.now
    run.writer.add(Attempt(time=now, number=1, step=10, lost=12, reason="rank 1 was killed"))
    run.writer.add(Failure(time=now, rank=1, error="ValueError", message="no", traceback="a\nb"))
    run.writer.add(Exited(time=now, rank=1, pid=1001, code=-9))
    error = RunError(rank=1, type="ValueError", message="no", traceback="a\n  b", host="node2")
    frames = [Frame("train.py", 3, "main")]
    threads = [ThreadStack(name="main", frames=frames), ThreadStack(name="other", frames=[])]
    append_stacks(run.dir, [Stacks(time=now, rank=0, threads=threads)])
    journal = JournalWriter(run.dir)
    journal.add(make_window())
    journal.close()
    job = Job(time=now, id="7", state="FAILED", nodes=["node1", "node2"], restarts=1)
    run.end(
        "failed", reason="rank 1", error=error, job=job, attempts=1, command=["distrain", "run"]
    )
    return run.dir


def _live(folder: Path) -> Path:
    """A run that trains, and stalls, as far as a reader can see."""
    run = RunBuilder(folder, "live", ago=5).steps(15).evaluation(top1=0.5)
    since = time.time() - 2
    absent = RankPosition(rank=1, since=since, step=15, phase="data", call="a.py:1 in f")
    waits = RankPosition(rank=0, since=since, step=15, collective="all_reduce", sequence=7)
    stall = Stall(since=since, ranks=[1], waiting="backward", positions=[waits, absent])
    run.writer.set_state(stall=stall, reason="", waiting_for=["a sentence"])
    run.writer.close()
    return run.dir


def _script(folder: Path) -> Path:
    """A completed run of a script, which logs values."""
    script = {"path": "train.py", "args": ["--lr", "0.1"], "env": {"A": "b"}}
    run = RunBuilder(folder, "script", ago=50, script=script).steps(10)
    run.logged(loss=1.0, **{"train/acc": 0.5}).logged(loss=0.5).evaluation(acc=0.5)
    settings = ScriptSettings(
        time=run.now,
        rank=0,
        config={"lr": 0.1, "data": "digits"},
        sources={"steps": "optimizer"},
        missing={"lr": "no optimizer"},
    )
    run.writer.add(settings)
    run.end("completed", reason="the program has ended")
    return run.dir


def _bench(folder: Path) -> Path:
    """A bench that has run, with a record of one of its runs."""
    state = {"warnings": ["a warning"], "provenance": PROVENANCE}
    bench = make_bench(folder, rounds=6, name="bench", cwd="/work", **state)
    name = bench.state.measurements[0].run_id
    shutil.move(RunBuilder(folder, "single").steps(10).end().dir, bench.records_dir / name)
    return bench.dir


def _live_bench(folder: Path) -> Path:
    return make_bench(folder, rounds=3, begun=1, status="running", cwd="/work").dir


MAKERS: dict[str, Callable[[Path], Path]] = {
    "training": _training,
    "failed": _failed,
    "live": _live,
    "script": _script,
    "bench": _bench,
    "live_bench": _live_bench,
}


def make_template(name: str, folder: Path) -> Path:
    """Write a record or a bench below a folder, and return its folder."""
    made = MAKERS[name](folder)
    if (made / "metrics.db").exists():
        Record(made).close()
        for log in ("launcher", "supervisor", "rank-0", "rank-1"):
            log_path(made, log).write_text(f"{log}: \x1b[32mgreen\x1b[0m\n50 %\r100 %\n")
    return made
