"""Given a script that trains, when it is stopped, then all ranks leave, and it may save first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import Run, find
from tests.support.programs import SAVES
from tests.support.runs import wait_until

from .conftest import Write, log_of, start

Launch = Callable[..., Run]

# Each rank calls at its own pace; steps are equal because the ranks meet in each.
ASKS = """
    import os, time
    import distrain
    import torch.distributed as dist
    dist.init_process_group("gloo")
    step = 0
    while True:
        step += 1
        dist.barrier()
        time.sleep(0.01 * int(os.environ["RANK"]))
        if distrain.should_stop():
            break
        if step == 3:
            print("has asked", flush=True)
    assert distrain.should_stop()
    print("left in step", step)
    dist.destroy_process_group()
"""
IGNORES = """
    import signal, time
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(600)
"""
ASKS_ON_RANK_0 = """
    import os, time
    import distrain
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
        if os.environ["RANK"] == "0" and distrain.should_stop():
            print("must not happen")
            break
"""


@pytest.fixture
def launch(write: Write, environment: dict[str, str], tmp_path: Path, runs_dir: Path) -> Launch:
    def launch(text: str, *words: str) -> Run:
        write("train.py", text)
        id = start(*words, "train.py", environment=environment, folder=tmp_path)
        return find(id, runs_dir)

    return launch


def wait_for_text(run: Run, text: str, ranks: int = 1) -> None:
    def is_there() -> bool:
        logs = [run.dir / "logs" / f"rank-{rank}.log" for rank in range(ranks)]
        return all(log.exists() and text in log.read_text() for log in logs)

    wait_until(is_there)


TWO = ("--devices", "cpu:2")


def test_ranks_that_ask_leave_in_the_same_step(launch: Launch) -> None:
    run = launch(ASKS, *TWO)
    wait_for_text(run, "has asked", 2)
    run.stop()
    found = run.wait(120)
    assert found["status"] == "stopped", run.reason
    left = [log_of(run.record, rank).splitlines()[-1] for rank in range(2)]
    assert left[0] == left[1]
    assert left[0].startswith("left in step ")
    assert run.reason == f"stopped on request in step {left[0].rpartition(' ')[2]}"


def test_a_script_that_was_told_to_stop_may_save_for_longer_than_a_stop_takes(
    launch: Launch,
) -> None:
    run = launch(
        """
        import time
        import distrain
        step = 0
        while not distrain.should_stop():
            step += 1
            time.sleep(0.01)
            if step == 3:
                print("ready", flush=True)
        time.sleep(5)
        print("saved")
        """,
        *("--set", "report.stop_timeout_s=1"),
    )
    wait_for_text(run, "ready")
    run.stop()
    assert run.wait(120)["status"] == "stopped"
    assert log_of(run.record).endswith("saved\n")
    assert run.reason.startswith("stopped on request in step ")


def test_a_script_that_trains_on_although_it_was_told_to_stop_is_interrupted(
    launch: Launch,
) -> None:
    run = launch(
        """
        import time
        import distrain
        for step in range(60_000):
            distrain.step()
            time.sleep(0.01)
            if not distrain.should_stop() and step == 3:
                print("ready", flush=True)
        """,
        *("--set", "report.stop_timeout_s=1"),
    )
    wait_for_text(run, "ready")
    run.stop()
    run.wait(120)
    assert (run.status, run.reason) == ("stopped", "interrupted on request")


@pytest.mark.parametrize("words", [(), TWO], ids=["inline", "torchrun"])
def test_a_script_that_does_not_ask_is_interrupted_and_may_save(
    words: tuple[str, ...], launch: Launch
) -> None:
    run = launch(SAVES, *words)
    ranks = 2 if words else 1
    wait_for_text(run, "ready", ranks)
    run.stop()
    run.wait(120)
    assert (run.status, run.reason) == ("stopped", "interrupted on request")
    for rank in range(ranks):
        assert "saved" in log_of(run.record, rank)


def test_ranks_of_which_one_asks_are_interrupted(launch: Launch) -> None:
    run = launch(ASKS_ON_RANK_0, *TWO)
    wait_for_text(run, "ready", 2)
    run.stop()
    run.wait(120)
    assert (run.status, run.reason) == ("stopped", "interrupted on request")
    assert [rank.phase for rank in run.record.ranks()] == ["interrupted"] * 2
    assert "must not happen" not in log_of(run.record)


def test_a_script_that_ignores_signals_is_killed_in_time(launch: Launch) -> None:
    run = launch(IGNORES, "--set", "report.stop_timeout_s=1")
    wait_for_text(run, "ready")
    run.stop()
    run.wait(120)
    assert run.status == "stopped"
    assert "ended because that took too long: rank 0 is in other code (" in run.reason


def test_a_shell_script_is_interrupted_with_its_children(
    write: Write, environment: dict[str, str], tmp_path: Path, runs_dir: Path
) -> None:
    script = write("train.sh", "#!/bin/sh\ntrap 'echo saved; exit 1' INT\necho ready\nsleep 600\n")
    script.chmod(0o755)
    id = start("./train.sh", environment=environment, folder=tmp_path)
    run = find(id, runs_dir)
    wait_for_text(run, "ready")
    run.stop()
    run.wait(120)
    assert (run.status, run.reason) == ("stopped", "interrupted on request")
    assert log_of(run.record).splitlines() == ["ready", "saved"]


def test_a_rank_that_has_ended_does_not_keep_the_others_from_stopping(launch: Launch) -> None:
    run = launch(
        """
        import os, time
        import distrain
        step = 0
        while True:
            step += 1
            time.sleep(0.01)
            if distrain.should_stop():
                print("left in step", step, flush=True)
                break
            if step == 5:
                print("has asked", flush=True)
                if os.environ["RANK"] == "0":
                    break
        """,
        *TWO,
    )
    wait_for_text(run, "has asked", 2)
    wait_until(lambda: any(rank.finished for rank in run.record.ranks()))
    run.stop()
    run.wait(120)
    assert run.reason.startswith("stopped on request in step ")
    assert "left in step" in log_of(run.record, 1)


def test_an_error_while_saving_is_named(launch: Launch) -> None:
    run = launch(
        """
        import time
        print("ready", flush=True)
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            raise OSError("disk full")
        """
    )
    wait_for_text(run, "ready")
    run.stop()
    run.wait(120)
    expected = "interrupted on request; then rank 0 failed: OSError: disk full"
    assert (run.status, run.reason) == ("stopped", expected)


@pytest.mark.parametrize("words", [(), TWO], ids=["inline", "torchrun"])
def test_processes_of_a_script_are_interrupted_as_in_a_terminal(
    words: tuple[str, ...], launch: Launch, write: Write
) -> None:
    write(
        "child.py",
        """
        import signal, sys, time
        interrupts = []
        signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
        print(sys.argv[1], "is there", flush=True)
        while not interrupts and sys.argv[1] == "child":
            time.sleep(0.01)
        time.sleep(0.5)
        sys.stdin.read()  # until the script has ended, or closes it
        print(sys.argv[1], "was interrupted", len(interrupts), "times", flush=True)
        """,
    )
    run = launch(
        """
        import subprocess, sys, time

        def start(name, **options):
            words = [sys.executable, "child.py", name]
            return subprocess.Popen(words, stdin=subprocess.PIPE, **options)

        children = [start("child"), start("service", start_new_session=True)]
        try:
            time.sleep(600)
        finally:
            for each in children:
                each.communicate()
        """,
        *words,
    )
    ranks = 2 if words else 1
    for name in ("child", "service"):
        wait_for_text(run, f"{name} is there", ranks)
    run.stop()
    run.wait(120)
    assert (run.status, run.reason) == ("stopped", "interrupted on request")
    for rank in range(ranks):
        assert "child was interrupted 1 times" in log_of(run.record, rank)
        assert "service was interrupted 0 times" in log_of(run.record, rank)
