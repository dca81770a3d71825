"""Given a program that distrain has not started, when it calls `init`, then its run is recorded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from distrain import DistrainError, Record, all_runs, find
from distrain.runners.runs import Run
from tests.integration.cli.conftest import Distrain, Start
from tests.support.runs import wait_until

from .conftest import Plain, Write, only_run

LOOPS = """
    import sys, time
    import distrain

    run = distrain.init(name="loops")
    print(run.dir, flush=True)
    while not ("asks" in sys.argv and distrain.should_stop()):
        time.sleep(0.02)
        distrain.step()
    print("left the loop")
"""

# Ranks that the program has started itself, in the way of torch.multiprocessing.spawn.
SPAWNS = """
    import multiprocessing, sys, time
    import distrain

    def work(rank, size):
        run = distrain.init(rank=rank, world_size=size)
        for step in range(10):
            distrain.step(samples=2)
            distrain.log({"loss": rank})
            if step == 5 and rank == 1 and "fails" in sys.argv:
                raise ValueError("a rank's own mistake")
        distrain.log_eval({"top1": rank}, samples=10 * (rank + 1))

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=work, args=(rank, 2)) for rank in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        sys.exit(max(each.exitcode for each in ranks))
"""


def run_of(process: subprocess.Popen[str], runs_dir: Path) -> Run:
    """Return the run of a program that prints its folder, once it has reported a step."""
    assert process.stdout
    folder = process.stdout.readline().strip()
    run = find(folder, runs_dir)
    wait_until(lambda: run.record.latest())
    return run


def newest(runs_dir: Path) -> Record:
    return max((Record(folder) for folder in runs_dir.iterdir()), key=lambda each: each.created)


def ended(record: Record) -> Record:
    wait_until(lambda: record.state.ended)
    return record


def test_a_program_with_init_is_recorded_as_one_that_distrain_runs(
    write: Write, plain: Plain, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain

        run = distrain.init(config={"lr": 0.1}, name="first")
        for batch in distrain.track([[1, 2, 3]] * 20):
            distrain.log({"loss": 0.5})
        (run.dir / "checkpoints" / "model.pt").write_text("weights")
        print(run.rank, run.previous_dir)
        """,
    )
    alone = plain("train.py", "--epochs", "3")
    assert (alone.stdout, alone.stderr) == ("0 None\n", "")
    record = only_run(runs_dir)
    found = record.summary()
    assert (found["status"], found["steps"], found["metrics"]) == ("completed", 20, {"loss": 0.5})
    assert record.name == "first"
    assert record.state.command == ["train.py", "--epochs", "3"]
    assert record.script_settings().config == {"lr": 0.1}
    assert (record.dir / "checkpoints" / "model.pt").exists()
    shown = distrain("show", "latest").stdout
    assert "script · inline · observed" in shown
    assert "not possible: distrain did not start the program" in shown
    logs = distrain("logs", "latest")
    assert (logs.returncode, logs.stdout) == (0, "")
    assert "its output is where its program was started" in logs.stderr
    again = distrain("rerun", "latest")
    assert again.returncode == 1
    assert "was not started by distrain; start its program again yourself" in again.stderr


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("raise ValueError('no')", "failed", "rank 0: ValueError: no"),
        ("sys.exit(3)", "failed", "rank 0: exited with code 3"),
        ("os._exit(0)", "stopped", "ended, cause unknown: rank 0 was gone without a report"),
        ("raise KeyboardInterrupt", "stopped", "interrupted (KeyboardInterrupt)"),
        ("run.finish()", "completed", "the program has ended"),
    ],
)
def test_the_end_of_the_program_is_that_of_its_run(
    write: Write, plain: Plain, runs_dir: Path, ending: str, status: str, reason: str
) -> None:
    write(
        "train.py",
        f"""
        import os, sys, distrain

        with distrain.init() as run:
            run.dir  # the observer is up
            {ending}
        """,
    )
    plain("train.py")
    state = ended(only_run(runs_dir)).state
    assert (state.status, state.reason) == (status, reason)


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("print(error); sys.exit(1)", "failed", "rank 0: ValueError: no"),
        ("pass\nsys.exit(3)", "failed", "rank 0: exited with code 3"),
        ("pass\nexit(3)", "failed", "rank 0: exited with code 3"),
        (
            "pass\nfor _ in distrain.track([1, 2]): sys.exit(3)",
            "failed",
            "rank 0: exited with code 3",
        ),
        ("pass\nsys.exit()", "completed", "the program has ended"),
        (
            "pass\ntry: sys.exit(2)\nexcept SystemExit: distrain.log({'loss': 1})",
            "completed",
            "the program has ended",
        ),
    ],
)
def test_a_program_that_exits_with_a_code_has_failed(
    write: Write, plain: Plain, runs_dir: Path, ending: str, status: str, reason: str
) -> None:
    lines = [
        "import sys, distrain",
        "run = distrain.init()",
        "run.dir",
        "try: raise ValueError('no')",
    ]
    write("train.py", "\n".join([*lines, f"except ValueError as error: {ending}"]))
    plain("train.py")
    state = ended(only_run(runs_dir)).state
    assert (state.status, state.reason) == (status, reason)


def test_each_run_that_a_thread_begins_is_ended_by_the_next(
    write: Write, plain: Plain, runs_dir: Path
) -> None:
    write(
        "threads.py",
        """
        import threading, distrain
        threads = [threading.Thread(target=distrain.init) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
    )
    assert plain("threads.py").stderr == ""
    assert [ended(run.record).status for run in all_runs(runs_dir)] == ["completed"] * 4


def test_an_uncaught_exception_is_reported_and_a_second_init_ends_the_first_run(
    write: Write, plain: Plain, runs_dir: Path
) -> None:
    write(
        "cells.py",
        """
        import distrain
        first = distrain.init(name="first")
        distrain.log({"loss": 1.0})
        distrain.step()
        second = distrain.init(name="second")
        distrain.log({"loss": 2.0})
        first.finish()  # it has ended already: nothing happens
        distrain.log({"loss": 3.0})
        assert first.id != second.id
        assert (first.steps, second.steps) == (1, 0)
        assert distrain.init({"lr": 0.1}, reuse=True).id == second.id
        raise RuntimeError("at the end")
        """,
    )
    assert plain("cells.py").returncode == 1
    records = {each.name: each for each in map(Record, runs_dir.iterdir())}
    assert records["first"].summary()["metrics"] == {"loss": 1.0}
    assert records["first"].status == "completed"
    assert records["second"].summary()["metrics"] == {"loss": 3.0}
    assert records["second"].script_settings().config == {"lr": 0.1}
    error = records["second"].state.error
    assert error is not None
    assert (error.type, error.rank) == ("RuntimeError", 0)
    assert "cells.py" in error.traceback


def test_a_stop_only_asks_the_program(
    write: Write, start_plain: Start, runs_dir: Path, distrain: Distrain
) -> None:
    write("loops.py", LOOPS)
    silent, asking = start_plain("loops.py"), start_plain("loops.py", "asks")
    run = run_of(silent, runs_dir)
    with pytest.raises(DistrainError, match=r"does not call distrain.should_stop\(\)"):
        run.stop()
    with pytest.raises(DistrainError, match="distrain did not start this program"):
        run.stop(now=True)
    assert run.status == "running"
    asked = run_of(asking, runs_dir)
    assert distrain("stop", asked.id, "--wait").returncode == 0
    assert asking.communicate()[0] == "left the loop\n"
    assert asked.status == "stopped"
    assert asked.reason.startswith("stopped on request in step ")
    assert silent.poll() is None


def test_a_lost_observer_does_not_end_the_program(
    write: Write, start_plain: Start, runs_dir: Path
) -> None:
    write("loops.py", LOOPS)
    process = start_plain("loops.py", "asks")
    run = run_of(process, runs_dir)
    pid = run.record.state.supervisor_pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    assert process.stderr
    assert process.stderr.readline() == (
        "distrain: nothing more is recorded: the observer has ended\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):  # it trains on
        process.wait(1)
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    assert run.status == "failed"


def test_signals_that_are_meant_for_the_program_do_not_end_its_observer(
    write: Write, start_plain: Start, runs_dir: Path
) -> None:
    """As of the option --signal of sbatch, which reaches every process that srun has started."""
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    handles = "".join(f"; signal.signal({number:d}, lambda *_: None)" for number in numbers)
    write("loops.py", LOOPS.replace("import sys, time", f"import signal, sys, time{handles}"))
    process = start_plain("loops.py", "asks")
    run = run_of(process, runs_dir)
    pid = run.record.state.supervisor_pid
    assert pid
    for each in (process.pid, pid):
        for number in numbers:
            os.kill(each, number)
    run.stop()
    assert process.communicate(timeout=60) == ("left the loop\n", "")
    assert ended(run.record).state.status == "stopped"


def test_a_program_that_cannot_be_recorded_runs_on(
    write: Write, plain: Plain, environment: dict[str, str]
) -> None:
    write("train.py", "import distrain\nprint(distrain.init().dir)\ndistrain.step()")
    environment["DISTRAIN_RUNS_DIR"] = "/proc/none"
    done = plain("train.py")
    assert (done.returncode, done.stdout) == (0, "None\n")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("distrain does not record this run: cannot write to the runs folder")
    environment["DISTRAIN_OBSERVE"] = "0"
    assert plain("train.py").stderr == ""


def test_children_of_a_rank_are_no_ranks(write: Write, plain: Plain, runs_dir: Path) -> None:
    write(
        "train.py",
        """
        import multiprocessing, os, subprocess, sys
        import distrain

        run = distrain.init(name=f"process {len(sys.argv)}")
        if __name__ == "__main__" and len(sys.argv) == 1:
            for method in ("fork", "spawn"):
                child = multiprocessing.get_context(method).Process(target=distrain.step)
                child.start()
                child.join()
            subprocess.run([sys.executable, __file__, "child"], check=True)
            distrain.step()
        """,
    )
    assert plain("train.py").stderr == ""
    assert only_run(runs_dir).summary()["steps"] == 1


def test_processes_that_the_program_starts_are_ranks_if_they_give_one(
    write: Write, plain: Plain, distrain: Distrain, runs_dir: Path
) -> None:
    write("spawns.py", SPAWNS)
    assert plain("spawns.py").returncode == 0
    assert distrain("run", "spawns.py").returncode == 0
    records = [Record(folder) for folder in runs_dir.iterdir()]
    assert len(records) == 2
    for record in records:
        found = record.summary()
        assert (found["world_size"], found["steps"], found["samples"]) == (2, 10, 40)
        assert found["eval"] == {"top1": pytest.approx(2 / 3), "samples": 30}
        assert found["status"] == "completed"
    for command in (
        lambda: plain("spawns.py", "fails"),
        lambda: distrain("run", "spawns.py", "fails"),
    ):
        command()
        error = ended(newest(runs_dir)).state.error
        assert error is not None
        assert (error.rank, error.type, error.step) == (1, "ValueError", 6)


def test_a_shell_script_reports_through_the_program_that_it_runs(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import sys, distrain
        run = distrain.init(config={"lr": 0.1})
        for _ in range(5):
            distrain.step(samples=3)
        sys.exit(int(sys.argv[1]))
        """,
    )
    script = write(
        "train.sh",
        f"#!/bin/sh\nexec_python() {{ {sys.executable} train.py $1; }}\nexec_python $1\n",
    )
    script.chmod(0o755)
    for code, status in ((0, "completed"), (4, "failed")):
        distrain("run", "./train.sh", str(code))
        found = newest(runs_dir).summary()
        assert (found["status"], found["steps"], found["samples"]) == (status, 5, 15)


def test_ranks_of_other_hosts_use_an_address_and_a_token(
    write: Write, start_plain: Start, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain
        run = distrain.init()
        for _ in range(4):
            distrain.step(samples=1)
        """,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    variables = {"DISTRAIN_OBSERVER": address, "DISTRAIN_TOKEN": "a shared secret"}
    ranks = [start_plain("train.py", RANK=str(r), WORLD_SIZE="2", **variables) for r in range(2)]
    for each in ranks:
        assert each.communicate()[1] == ""
    found = ended(only_run(runs_dir)).summary()
    assert (found["status"], found["world_size"], found["samples"]) == ("completed", 2, 8)


def test_ranks_of_torchrun_find_each_other(write: Write, plain: Plain, runs_dir: Path) -> None:
    write(
        "train.py",
        """
        import sys
        import torch.distributed as dist
        import distrain

        dist.init_process_group("gloo")
        run = distrain.init(config={"lr": 0.1})
        for step in range(8):
            dist.barrier()
            distrain.step(samples=1)
            if step == 6 and dist.get_rank() == 1 and len(sys.argv) > 1:
                raise ValueError("rank 1 only")
        distrain.log_eval({"top1": dist.get_rank()}, samples=10)
        dist.destroy_process_group()
        """,
    )
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "train.py")
    assert plain(*torchrun).returncode == 0
    record = ended(only_run(runs_dir))
    found = record.summary()
    assert (found["status"], found["launcher"], found["steps"]) == ("completed", "torchrun", 8)
    assert found["eval"] == {"top1": 0.5, "samples": 20}
    assert plain(*torchrun, "fails").returncode == 1
    error = ended(newest(runs_dir)).state.error
    assert error is not None
    assert (error.rank, error.message, error.step) == (1, "rank 1 only", 7)


def test_each_run_of_a_process_is_observed_from_its_init_on(
    write: Write, plain: Plain, runs_dir: Path
) -> None:
    write(
        "cells.py",
        """
        import torch
        import distrain

        data = torch.utils.data.TensorDataset(torch.randn(40, 2), torch.randn(40, 1))
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(epochs):
            for epoch in range(epochs):
                for x, y in torch.utils.data.DataLoader(data, batch_size=4):
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(x), y).backward()
                    optimizer.step()

        train(1)
        for epochs in (2, 3):
            distrain.init(name=f"{epochs} epochs")
            train(epochs)
        """,
    )
    assert plain("cells.py").stderr == ""
    found = {record.name: record.summary() for record in map(Record, runs_dir.iterdir())}
    for epochs in (2, 3):
        figures = found[f"{epochs} epochs"]
        assert (figures["steps"], figures["samples"]) == (10 * epochs, 40 * epochs)
        assert figures["sources"]["steps"] == "optimizer steps of SGD"
