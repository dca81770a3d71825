"""Faults of the machine and of people: `python -m tests.faults.special FOLDER NAME`.

Each function carries out one and returns the problems; it prints the result as `case` does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distrain import Record
from distrain.runners.errors import DistrainError
from tests.faults import checks, disks
from tests.faults.case import Result, make_private
from tests.faults.cases import SEED, Case
from tests.faults.trial import DISTRAIN, FaultError, Trial, wait_until, words_of

HELD = {"phase": "", "seconds": 0, "steps": 60, "every": 20, "workers": 0, "timeout_s": 60}
LAUNCHES = 50
DAMAGES = 12


def trial_in(folder: Path, pace: float = 0.0, **environment: str) -> Trial:
    return Trial(folder, {**HELD, "pace": pace}, environment)


def completes(trial: Trial, status: str = "completed") -> list[str]:
    """Wait for the end of a run, and return what is wrong with it."""
    trial.wait_for_end(120)
    record = trial.record
    problems = checks.told_by_viewer(trial, record)
    if record.status != status:
        problems.append(f"{record.status}, not {status}: {record.state.reason}")
    problems += checks.nothing_runs(trial)[1]
    return problems + checks.readable(record, 0) + checks.shown(trial, record)


def in_training(trial: Trial) -> None:
    wait_until(lambda: trial.phase(0)[1] > 25)


def clock_set(folder: Path) -> list[str]:
    """The clock is set back by an hour, then forth by two, while the run trains."""
    offset = folder / "offset"
    offset.write_text("0")
    with trial_in(folder, pace=0.05, FAULT_CLOCK=str(offset)) as trial:
        trial.start(*words_of("spawn", train__max_steps=100))
        for seconds in (-3600, 7200):
            in_training(trial)
            offset.write_text(str(seconds))
            time.sleep(1.5)
        problems = completes(trial)
        state = trial.record.state
        assert state.started is not None
        assert state.ended is not None
        seconds = state.ended - state.started
        if not 5 < seconds < 600:
            problems.append(f"the duration is {seconds:.0f} s")
        return problems


def port_in_use(folder: Path) -> list[str]:
    with trial_in(folder) as trial, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = trial.distrain("run", *words_of("spawn", report__listen=f"127.0.0.1:{port}"))
        is_clear = done.returncode == 1 and "address already in use" in done.stderr.lower()
        problems = [] if is_clear and "Traceback" not in done.stderr else [done.stderr]
        return problems + checks.nothing_runs(trial)[1] + checks.nothing_left(trial, True)


def many_launches(folder: Path) -> list[str]:
    """50 runs are launched at once; each has a record of its own and completes."""
    with trial_in(folder) as trial:
        command = [*DISTRAIN, "run", "--json", "--", "/bin/true"]
        started = [
            subprocess.Popen(
                command,
                env=trial.environment,
                cwd=trial.user,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(LAUNCHES)
        ]
        problems = []
        for process in started:
            _, errors = process.communicate(timeout=300)
            if process.returncode:
                problems.append(errors[-200:])
        records = [Record(path.parent) for path in trial.runs.glob("*/run.json")]
        completed = sum(record.status == "completed" for record in records)
        if completed != LAUNCHES:
            problems.append(f"{completed} of {LAUNCHES} completed")
        return problems + checks.nothing_runs(trial)[1] + checks.nothing_left(trial, True)


def folder_moved(folder: Path, is_deleted: bool = False) -> list[str]:
    with trial_in(folder, pace=0.05) as trial:
        trial.start(*words_of("torchrun", train__max_steps=1000))
        in_training(trial)
        _ = trial.record
        moved = folder / "moved"
        trial.runs.rename(moved)
        if is_deleted:
            shutil.rmtree(moved)
        trial.viewer.wait(60)
        problems = checks.nothing_runs(trial)[1]
        if is_deleted:
            return problems
        (run,) = moved.iterdir()
        record = Record(run)
        if record.status != "failed" or "was moved or deleted" not in record.state.reason:
            problems.append(f"{record.status}: {record.state.reason}")
        return problems + checks.readable(record, 0)


def folder_deleted(folder: Path) -> list[str]:
    return folder_moved(folder, is_deleted=True)


def record_truncated(folder: Path) -> list[str]:
    """Files of a record end at random bytes: every command says so, or shows what is left."""
    chance = random.Random(SEED)
    problems = []
    with trial_in(folder) as trial:
        trial.start(*words_of("spawn", train__max_steps=40))
        trial.wait_for_end(120)
        whole = trial.record.dir
        for number in range(DAMAGES):
            name = chance.choice(["run.json", "metrics.db", "config.toml", "meta.json"])
            size = chance.randrange((whole / name).stat().st_size)
            damaged = whole.with_name(f"damaged-{number}")
            shutil.copytree(whole, damaged, symlinks=True)
            os.truncate(damaged / name, size)
            for words in (["show", damaged.name], ["export", damaged.name, "--to", "jsonl"]):
                done = trial.distrain(*words)
                if "Traceback" in done.stderr or (done.returncode and not done.stderr):
                    problems.append(f"{name} at {size}: {words[0]}: {done.stderr[-200:]}")
        done = trial.distrain("runs")
        if done.returncode or "Traceback" in done.stderr:
            problems.append(f"runs: {done.stderr[-200:]}")
    return problems


def checkpoint_damaged(folder: Path) -> list[str]:
    """A resume from a truncated checkpoint, or one with a flipped byte, says that it is damaged.

    A byte that belongs to no content may be flipped without harm.
    """
    chance = random.Random(SEED)
    problems = []
    with trial_in(folder) as trial:
        trial.start(*words_of("spawn", train__max_steps=40))
        trial.wait_for_end(120)
        checkpoint = trial.record.last_checkpoint
        assert checkpoint is not None
        content = checkpoint.read_bytes()
        resume = ["resume", trial.record.id, "--set=train.max_steps=42", "--set=launcher=inline"]
        for number in range(6):
            place = chance.randrange(len(content))
            flipped = bytes([content[place] ^ 1 << chance.randrange(8)])
            damaged = content[:place] + (flipped + content[place + 1 :] if number % 2 else b"")
            checkpoint.write_bytes(damaged)
            done = trial.distrain(*resume, "--devices", "cpu:1")
            is_named = done.returncode == 2 and "damaged" in done.stderr
            if not is_named and not (number % 2 and done.returncode == 0):
                problems.append(f"byte {place}: {done.returncode} {done.stderr[-200:]}")
    return problems


def ctrl_c_storm(folder: Path) -> list[str]:
    with trial_in(folder, pace=0.05) as trial:
        trial.start(*words_of("torchrun", train__max_steps=1000))
        in_training(trial)
        for _ in range(30):
            os.killpg(trial.viewer.pid, signal.SIGINT)
            time.sleep(0.02)
        return completes(trial, status="stopped") + checks.nothing_left(trial, True)


def other_signals(folder: Path) -> list[str]:
    """SIGHUP, SIGPIPE and SIGWINCH end nothing but the viewer."""
    with trial_in(folder, pace=0.03) as trial:
        trial.start(*words_of("torchrun", train__max_steps=80))
        in_training(trial)
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGWINCH):
            trial.supervisor().send_signal(number)
        for number in (signal.SIGWINCH, signal.SIGPIPE, signal.SIGHUP):
            trial.viewer.send_signal(number)
        trial.wait_for_end(120)
        problems = [] if trial.record.status == "completed" else [trial.record.state.reason]
        if "Traceback" in trial.printed:
            problems.append(trial.printed[-300:])
        problems += checks.nothing_runs(trial)[1]
        return problems + checks.nothing_left(trial, True)


def output_closed(folder: Path) -> list[str]:
    """Nobody reads what `distrain run` prints any more; the run goes on."""
    with trial_in(folder) as trial:
        command = [*DISTRAIN, "run", *words_of("spawn", train__max_steps=60)]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=trial.environment, cwd=trial.user, **pipe) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            process.stderr.close()
            process.wait(120)
        trial.wait_for_end(120)
        problems = [] if trial.record.status == "completed" else [trial.record.state.reason]
        return problems + checks.nothing_runs(trial)[1] + checks.nothing_left(trial, True)


def no_utf8(folder: Path) -> list[str]:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
                  "PYTHONIOENCODING": "ascii"}  # fmt: skip
    with trial_in(folder, **ascii_only) as trial:
        trial.start(*words_of("spawn", train__max_steps=40))
        problems = completes(trial)
        for words in (["show", "latest"], ["runs"], ["watch", "latest"]):
            done = trial.distrain(*words)
            if done.returncode or "Traceback" in done.stderr:
                problems.append(f"{words[0]}: {done.stderr[-200:]}")
        return problems


SPECIAL: dict[str, Callable[[Path], list[str]]] = {
    "disk full": disks.full,
    "out of inodes at the start": disks.no_inodes_at_start,
    "out of inodes in training": disks.no_inodes_in_training,
    "read-only half-way": disks.read_only,
    "TMPDIR full": disks.full_tmpdir,
    "HOME read-only": disks.read_only_home,
    "clock set back and forth": clock_set,
    "port in use": port_in_use,
    "50 launches at once": many_launches,
    "folder moved": folder_moved,
    "folder deleted": folder_deleted,
    "record truncated": record_truncated,
    "checkpoint truncated or flipped": checkpoint_damaged,
    "Ctrl-C storm": ctrl_c_storm,
    "SIGHUP, SIGPIPE, SIGWINCH": other_signals,
    "output closed": output_closed,
    "no UTF-8": no_utf8,
}


def main() -> int:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    make_private()
    result = Result(Case("special", name, "", ""))
    try:
        result.problems = SPECIAL[name](folder)
    except (FaultError, DistrainError, subprocess.SubprocessError) as error:
        result.problems = [str(error)]
    finished: dict[str, Any] = result.as_json()
    if not result.problems:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(finished))
    return 0


if __name__ == "__main__":
    sys.exit(main())
