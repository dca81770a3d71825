"""What a job's first node keeps beside it, whatever the disk does meanwhile."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runners.config import RunConfig
from runners.events import Notice
from runners.journal import Journal, Reader
from runners.plan import make_plan
from runners.slurm import recording
from runners.state import JOURNAL, create_run

LONG = 120.0
ROOM = 4096  # bytes of a file that the disk takes while it is full
Records = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = RunConfig.from_dict({"launcher": "slurm", "slurm": {"report": "files"}})
    return create_run(tmp_path, config, plan=make_plan(config), word="far")


@pytest.fixture
def records(folder: Path, tmp_path: Path) -> Iterator[Records]:
    """Start what records a job beside it, where a file has no more than `ROOM` bytes."""
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 127.0.0.1\n")
    (tmp_path / "sinfo").chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def full() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))

    def start(*command: str) -> subprocess.Popen[str]:
        ours = {
            "DISTRAIN_RUN": str(folder),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "n1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "runners.slurm.recording", *command],
            env={**os.environ, **ours},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=full,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def make_room(process: subprocess.Popen[str]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def refused(process: subprocess.Popen[str]) -> None:
    """Wait until the disk has refused something."""
    assert process.stderr is not None
    told = process.stderr.readline()
    assert told.strip().endswith(f"{JOURNAL}: File too large"), told


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_disk_that_is_full_for_a_moment_does_not_end_the_job(
    folder: Path, records: Records, ends: str
) -> None:
    (folder / JOURNAL).write_bytes(b"x" * (ROOM - 50))  # what an attempt before has left
    process = records(*(["true"] if ends == "before" else ["sleep", "600"]))
    refused(process)
    assert (folder / JOURNAL).stat().st_size == ROOM
    make_room(process)
    if ends == "after":
        while len(list(Reader(folder).news())) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)
    assert process.returncode == (0 if ends == "before" else -signal.SIGTERM % 256)
    damage, begun = Reader(folder).news()
    assert isinstance(damage, Notice)
    assert isinstance(begun, Notice)
    assert "records the run beside the job, in its folder" in begun.text


def test_a_disk_that_stays_full_does_not_keep_the_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / JOURNAL).symlink_to("/dev/full")
    journal = Journal(folder)
    journal.add(Notice(time=1.0, text="the last"))
    monkeypatch.setattr(recording, "LAST_S", 0.1)
    asyncio.run(recording.kept(journal))
    assert "No space left on device" in capsys.readouterr().err
