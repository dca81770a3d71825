"""Disks that are full or cannot be written, as small file systems of a mount namespace."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.faults import checks
from tests.faults.trial import Trial, small_disk, wait_until, words_of

HELD = {"phase": "", "seconds": 0, "pace": 0.02, "steps": 60, "every": 20, "workers": 0,
        "timeout_s": 60}  # fmt: skip
NO_SPACE = "No space left on device"
FIRST_INODES = (7, 10, 12, 13, 15)  # fewer than a run needs until its first checkpoint
IMAGE_MIB = 16


def fails_because(trial: Trial, reason: str) -> list[str]:
    """Wait for the end; the error that is printed and recorded contains the reason."""
    trial.wait_for_end(120)
    record = trial.record
    problems = checks.told_by_viewer(trial, record)
    if record.status != "failed" or reason not in record.state.reason:
        problems.append(f"{record.status}: {record.state.reason}")
    problems += checks.nothing_runs(trial)[1]
    return problems + checks.readable(record, 0) + checks.shown(trial, record)


def full(folder: Path) -> list[str]:
    """The disk is full while metrics are recorded and checkpoints are written."""
    with Trial(folder, HELD) as trial, small_disk(trial.runs, "size=1200k"):
        trial.start(*words_of("spawn", train__max_steps=20_000, checkpoint__keep=100))
        return fails_because(trial, NO_SPACE)


def no_inodes_at_start(folder: Path) -> list[str]:
    problems = []
    for inodes in FIRST_INODES:
        trial = Trial(folder / str(inodes), HELD)
        with trial, small_disk(trial.runs, f"nr_inodes={inodes}"):
            done = trial.distrain("run", *words_of("spawn", train__max_steps=40))
            printed = " ".join(done.stderr.split())
            if done.returncode == 0 or NO_SPACE not in printed:
                problems.append(f"{inodes} inodes: run: {printed[-200:]}")
            if "supervisor did not start" in printed and "Traceback" in printed:
                problems.append(f"{inodes} inodes: a traceback: {printed[-200:]}")
            shown = trial.distrain("show", "latest")
            if not shown.stdout.startswith("failed") or NO_SPACE not in shown.stdout:
                problems.append(f"{inodes} inodes: show: {shown.stdout[:100]}{shown.stderr}")
            problems += checks.nothing_runs(trial)[1]
    return problems


def no_inodes_in_training(folder: Path) -> list[str]:
    """The second checkpoint finds no inode."""
    with Trial(folder, HELD) as trial, small_disk(trial.runs, "nr_inodes=64"):
        trial.start(*words_of("spawn", train__max_steps=20_000, checkpoint__keep=100))
        return fails_because(trial, NO_SPACE)


def read_only(folder: Path) -> list[str]:
    """The file system of the runs has an error, and becomes read-only."""
    with Trial(folder, HELD) as trial:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(IMAGE_MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
        trial.runs.mkdir()
        subprocess.run(["mount", "-o", "loop", str(image), str(trial.runs)], check=True)
        try:
            trial.start(*words_of("spawn", train__max_steps=20_000))
            wait_until(lambda: trial.phase(0)[1] > 45)
            subprocess.run(
                ["mount", "-o", "remount,abort", str(trial.runs)], capture_output=True, check=False
            )
            trial.viewer.wait(120)
            problems = checks.nothing_runs(trial)[1]
            if "is read-only" not in trial.printed:
                problems.append(trial.printed[-300:])
            return problems + checks.readable(trial.record, 1)
        finally:
            subprocess.run(["umount", "--lazy", str(trial.runs)], check=True)


def full_tmpdir(folder: Path) -> list[str]:
    """TMPDIR has no room for anything: the run completes, or says why it cannot start."""
    with Trial(folder, HELD) as trial, small_disk(trial.tmp, "size=4k,nr_inodes=1"):
        done = trial.distrain("run", *words_of("spawn", train__max_steps=40))
        is_told = done.returncode == 1 and NO_SPACE in done.stderr
        problems = [] if done.returncode == 0 or is_told else [done.stderr[-300:]]
        return problems + checks.nothing_runs(trial)[1]


def read_only_home(folder: Path) -> list[str]:
    home = folder / "home"
    with (
        Trial(folder / "run", HELD, {"HOME": str(home)}) as trial,
        small_disk(home, "ro,size=4k"),
    ):
        trial.environment.pop("DISTRAIN_CLAIMS_DIR")
        trial.environment.pop("XDG_CONFIG_HOME", None)
        done = trial.distrain("run", *words_of("spawn", train__max_steps=40))
        problems = [] if done.returncode == 0 else [done.stderr[-300:]]
        return problems + checks.nothing_runs(trial)[1] + checks.nothing_left(trial, True)
