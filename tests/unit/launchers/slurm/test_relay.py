"""The journal on the first node of a job survives a full disk."""

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
from msgspec import structs

from distrain.runners.config.planning import plan_here
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Notice
from distrain.runners.records.folder import create_run
from distrain.runners.records.journal import JournalReader, JournalWriter
from distrain.runners.records.run_folder import JOURNAL
from distrain.runners.records.state import read_state, write_state
from distrain.runners.supervision import relay

LONG = 120.0
ROOM = 4096  # bytes of a file that the disk takes while it is full
Records = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = RunConfig.from_dict({"launcher": "slurm", "slurm": {"report": "files"}})
    return create_run(tmp_path, config, plan=plan_here(config), word="far")


@pytest.fixture
def records(folder: Path, tmp_path: Path) -> Iterator[Records]:
    """Start a relay whose files can have no more than `ROOM` bytes."""
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 127.0.0.1\n")
    (tmp_path / "sinfo").chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def full() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))

    def start(*command: str) -> subprocess.Popen[str]:
        variables = {
            "DISTRAIN_RUN": str(folder),
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "n1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "distrain.runners.supervision.relay", *command],
            env={**os.environ, **variables},
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
    """Wait until the disk has refused a write."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.strip().endswith(f"{JOURNAL}: File too large"), line


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_disk_that_is_full_for_a_moment_does_not_end_the_job(
    folder: Path, records: Records, ends: str
) -> None:
    (folder / JOURNAL).write_bytes(b"x" * (ROOM - 50))  # left by an earlier attempt
    process = records(*(["true"] if ends == "before" else ["sleep", "600"]))
    refused(process)
    assert (folder / JOURNAL).stat().st_size == ROOM
    make_room(process)
    if ends == "after":
        while len(list(JournalReader(folder).read_new())) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG)
    assert process.returncode == (0 if ends == "before" else -signal.SIGTERM % 256)
    damage, begun = JournalReader(folder).read_new()
    assert isinstance(damage, Notice)
    assert isinstance(begun, Notice)
    assert "records the run in a journal in its folder" in begun.text


def test_a_disk_that_stays_full_does_not_delay_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / JOURNAL).symlink_to("/dev/full")
    journal = JournalWriter(folder)
    journal.add(Notice(time=1.0, text="the last"))
    monkeypatch.setattr(relay, "LAST_WRITE_S", 0.1)
    asyncio.run(relay.write_rest(journal))
    assert "No space left on device" in capsys.readouterr().err


def test_a_job_that_starts_after_the_end_of_its_run_does_nothing(
    folder: Path, records: Records, tmp_path: Path
) -> None:
    write_state(folder, structs.replace(read_state(folder), status="stopped"))
    process = records("touch", str(tmp_path / "trained"))
    _, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (1, f"run {folder.name} has ended: stopped\n")
    assert not (tmp_path / "trained").exists()
