"""What must hold after every case. Each check returns the problems it finds, as sentences."""

from __future__ import annotations

import json
import sqlite3
import time
import zipfile
from contextlib import closing
from pathlib import Path

import psutil

from distrain import Record
from distrain.runners.errors import DistrainError
from distrain.runners.records.timeseries.series import HOST, PROCS, STEPS
from tests.faults.expected import Expected, culprit_of
from tests.faults.trial import EVERY, Trial

TORCH_CACHE = "torchinductor_"  # a folder of each user, which torch keeps
GONE_S = 15.0  # longest wait for processes to be gone
SHARED = Path("/dev/shm")
EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 130}


def outcome(record: Record, wanted: Expected) -> list[str]:
    """The status is right, and a failure names its culprit."""
    state = record.state
    if state.status not in wanted.statuses:
        return [f"{state.status}, not {' or '.join(wanted.statuses)}: {state.reason}"]
    if state.status == "failed" and state.error and culprit_of(state.error) != wanted.culprit:
        return [f"blames {culprit_of(state.error)}, not {wanted.culprit}: {state.reason}"]
    return []


def count_windows(record: Record) -> int:
    """Return how many windows of all ranks can be read."""
    ranks = record.keys(STEPS)
    return sum(1 for rank in ranks for _ in record.samples(STEPS, rank))


def readable(record: Record, rows_before: int) -> list[str]:
    """The database is whole, has what it had before the fault, and every row can be read."""
    database = record.dir / "metrics.db"
    if not database.exists():
        return [] if not rows_before else ["metrics.db is missing"]
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            found = db.execute("PRAGMA integrity_check").fetchone()[0]
        rows = count_windows(record)
        for series in (HOST, PROCS):
            for key in record.keys(series):
                list(record.samples(series, key))
        list(record.events())
        record.summary()
    except (DistrainError, sqlite3.Error) as error:
        return [f"cannot be read: {error}"]
    problems = [] if found == "ok" else [f"integrity_check: {found}"]
    if rows < rows_before:
        problems.append(f"has {rows} windows; before the fault it had {rows_before}")
    return problems


def shown(trial: Trial, record: Record) -> list[str]:
    """`distrain show` shows the same status and error."""
    done = trial.distrain("show", record.id, "--json")
    if done.returncode:
        return [f"show: {done.stderr.strip()}"]
    told = json.loads(done.stdout)
    error = record.state.error
    message = (told.get("error") or {}).get("message", "")
    if told["status"] != record.state.status or message != (error.message if error else ""):
        return [f"show tells {told['status']}: {message}"]
    return []


def told_by_viewer(trial: Trial, record: Record) -> list[str]:
    """`distrain run` has ended with the exit code of the status, and has printed the error."""
    try:
        code = trial.viewer.wait(GONE_S)
    except Exception:
        return ["distrain run has not ended"]
    problems = []
    state = record.state
    if code != EXIT_CODES[state.status]:
        problems.append(f"distrain run exited with {code} though the run {state.status}")
    printed = " ".join(trial.printed.split())
    if state.error and " ".join(state.error.message.split("\n")[0].split()) not in printed:
        problems.append(f"distrain run did not print the error: {printed[-200:]}")
    return problems


def nothing_runs(trial: Trial) -> tuple[float, list[str]]:
    """No process is left; returns the seconds until then too."""
    began = time.monotonic()
    while left := trial.processes():
        if time.monotonic() - began > GONE_S:
            return GONE_S, [f"still running: {', '.join(map(_described, left))}"]
        time.sleep(0.1)
    return time.monotonic() - began, []


def nothing_left(trial: Trial, is_shared_private: bool) -> list[str]:
    """No temporary file, socket, shared memory or semaphore is left."""
    found = [path.relative_to(trial.tmp) for path in trial.tmp.rglob("*")]
    left = [str(path) for path in found if not path.parts[0].startswith(TORCH_CACHE)]
    if is_shared_private:
        left += [str(path) for path in SHARED.iterdir()]
    return [f"left behind: {', '.join(sorted(left)[:5])}"] if left else []


def checkpoint_is_whole(record: Record) -> list[str]:
    """The last checkpoint has the checksums that it was written with, and no part is left of one.

    A supervisor that was killed could not remove it.
    """
    error = record.state.error
    left = list(record.dir.glob("checkpoints/*.partial"))
    if left and not (error and error.type == "SupervisorLost"):
        return [f"left in the record: {left[0].name}"]
    if record.last_checkpoint is None:
        return []
    try:
        with zipfile.ZipFile(record.last_checkpoint) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile as error:
        damaged = str(error)
    return [f"{record.last_checkpoint.name} is damaged: {damaged}"] if damaged else []


def resumes(trial: Trial, record: Record) -> tuple[bool, list[str]]:
    """A run with a checkpoint that has not completed continues; returns whether there is one."""
    is_script = record.config.is_script
    has_one = (trial.user / "last.pt").exists() if is_script else record.last_checkpoint is not None
    if not has_one or record.status == "completed":
        return False, []
    trial.hold({"phase": "", "seconds": 0, "pace": 0, "steps": 8, "every": 4, "workers": 0,
                "timeout_s": 60})  # fmt: skip
    words = ["resume", record.id, "--json", "--devices", "cpu:1"]
    if not is_script:
        assert record.last_checkpoint is not None
        step = int(record.last_checkpoint.stem.removeprefix("step-"))
        wanted = step + EVERY // 2
        words += [f"--set=train.max_steps={wanted}", "--set=launcher=inline", "--set=strategy=ddp",
                  "--set=data.workers=0"]  # fmt: skip
    else:
        words += ["--set=launcher=inline"]
    done = trial.distrain(*words)
    if done.returncode:
        return True, [f"resume: {' '.join(done.stderr.split())[-300:]}"]
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    if not is_script and summary["steps"] != wanted:
        return True, [f"resumed to step {summary['steps']}, not {wanted}"]
    return True, []


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline()[-3:])}"
    except psutil.Error:
        return str(process.pid)
