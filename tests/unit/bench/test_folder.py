"""The folder of a new bench."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from distrain.runners.bench import folder
from distrain.runners.bench.rounds import Rounds
from distrain.runners.errors import DistrainError, RunsFolderError
from distrain.runners.records.folder import create_run
from distrain.runners.records.state import read_state, write_state
from tests.support.benches import config, make_bench


def test_a_bench_whose_id_is_taken_leaves_the_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "new_run_id", lambda *_: "20261121-044117-bench-x7k2")
    first = make_bench(tmp_path)
    with pytest.raises(RunsFolderError, match="File exists"):
        make_bench(tmp_path)
    assert first.status == "completed"


def test_a_live_bench_whose_process_is_hidden_in_a_container_is_live(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, status="running")
    hidden = structs.replace(folder.read_bench_state(bench.dir), pid=2**30)
    folder.write_bench_state(bench.dir, hidden)
    with (bench.dir / folder.LOCK).open("w") as process:
        fcntl.flock(process, fcntl.LOCK_EX)
        assert bench.status == "running"
        assert "cannot be seen from here" in bench.reason
        for act in (bench.remove, bench.resume, bench.stop):
            with pytest.raises(DistrainError):
                act()
    assert bench.status == "failed"


def test_a_bench_that_ends_while_it_is_read_is_not_one_whose_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, status="running")

    def end(state: folder.BenchState) -> bool:
        folder.write_bench_state(bench.dir, structs.replace(state, status="completed"))
        return False

    monkeypatch.setattr(folder, "has_process", end)
    assert bench.status == "completed"


def test_a_bench_of_a_host_that_is_gone_is_resumed_on_another_one(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, status="running")
    run = create_run(bench.records_dir, config(), word="ddp", queue=True)
    write_state(run, structs.replace(read_state(run), host="gone"))
    state = folder.read_bench_state(bench.dir)
    assert state.current is not None
    current = structs.replace(state.current, run_id=run.name)
    state = structs.replace(state, host="gone", pid=2**30, current=current)
    folder.write_bench_state(bench.dir, state)
    assert bench.status == "running"
    for path in (bench.dir / folder.STATE, run / "run.json"):
        os.utime(path, (0, 0))
    assert bench.status == "running"  # its run waits in a queue
    shutil.rmtree(run)
    assert bench.status == "failed"
    assert "its process on gone has written nothing for five minutes" in bench.reason
    Rounds(bench.dir).begin(queue=False)
    assert (bench.status, bench.state.host) == ("running", socket.gethostname())


def test_a_bench_whose_process_may_not_be_read_belongs_to_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)  # as where /proc hides what processes do

    bench = make_bench(tmp_path, status="running")
    monkeypatch.setattr(psutil.Process, "cmdline", refuse)
    with pytest.raises(DistrainError, match="belongs to another user"):
        bench.stop()
