"""Given a script that uses distrain, when it runs, then its figures are recorded exactly."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from distrain.runners.protocol.events import Evaluation
from distrain.runners.records.timeseries.series import LOGGED
from tests.integration.cli.conftest import Distrain
from tests.support import ROOT

from .conftest import Write, log_of, only_run, summary

# 3 epochs of 8 batches: 7 of 4 samples and one of 2.
TRAINS = """
    import argparse, os
    import distrain
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    run = distrain.init(config=vars(parser.parse_args()))
    rank = int(os.environ.get("RANK", "0"))
    data = torch.utils.data.TensorDataset(torch.arange(30.0), torch.arange(30))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for epoch in range(3):
        for number, (x, y) in enumerate(distrain.track(loader)):
            distrain.log({"loss": x.mean() + rank, "lr": 0.1})
        distrain.log_eval({"top1": 0.5 + rank / 2, "loss": 1.0}, samples=100 + 200 * rank)
    if rank == 0:
        distrain.log_eval({"top1": 0.0}, samples=1)
    print(run.id, run.rank, run.previous_dir)
"""


def test_steps_samples_and_values_of_every_rank_are_recorded(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TRAINS)
    found = summary(distrain, "--devices", "cpu:2", "train.py", "--lr", "0.5")
    assert (found["steps"], found["samples"]) == (24, 2 * 3 * 30)
    assert found["metrics"] == {"loss": 28.5, "lr": 0.1}
    assert found["sources"]["steps"] == "batches of distrain.track()"
    # Both ranks: (0.5 × 100 + 1.0 × 300) / 400.
    assert found["eval"] == {"top1": 0.875, "loss": 1.0, "samples": 400}
    record = only_run(runs_dir)
    evaluations = [event for event in record.evaluations() if isinstance(event, Evaluation)]
    assert [event.step for event in evaluations] == [8, 16, 24]
    totals = record.totals(LOGGED)
    one_epoch = sum(1.5 + 4 * number for number in range(7)) + 28.5
    for rank, key in record.logged()["loss"].items():
        assert totals[key]["finite"] == 24
        assert totals[key]["total"] == pytest.approx(3 * one_epoch + 24 * rank)
    assert record.script_settings().config == {"lr": 0.5}
    shown = distrain("show", "latest").stdout
    assert "28.5" in shown
    assert "lr  0.5" in shown
    assert "of 400 samples, step 24, reported by the script" in shown
    assert re.search(r"eval +distrain\.log_eval\(\), not checked", shown)
    assert re.search(r"values +distrain\.log\(\)", shown)
    exported = distrain("export", "latest", "--to", "jsonl").stdout
    kinds = {json.loads(line)["type"] for line in exported.splitlines()}
    assert {"logged", "window", "evaluation"} <= kinds
    assert "evaluation 4 is not recorded: rank 1 has not called distrain.log_eval()" in exported
    steps = distrain("export", "latest", "--to", "csv")
    assert steps.stdout.startswith("rank,time,")
    assert "--table logged" in steps.stderr
    logged = distrain("export", "latest", "--to", "csv", "--table", "logged")
    assert logged.stdout.startswith("rank,name,")
    assert logged.stderr == ""


def test_calls_of_step_count_instead_of_batches(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain
        for number, batch in enumerate(distrain.track([[1, 2, 3]] * 10)):
            if number % 2:
                distrain.step(samples=6)
                distrain.log({"loss": number}, step=number * 100)
        distrain.log({"loss": float("inf"), "late": 1})
        """,
    )
    found = summary(distrain, "train.py")
    assert (found["steps"], found["samples"]) == (5, 30)
    sources = found["sources"]
    assert sources["steps"] == sources["samples"] == "distrain.step()"
    assert found["metrics"] == {"loss": 9.0, "late": 1.0}
    record = only_run(runs_dir)
    curve = record.curve(LOGGED, record.logged()["loss"][0])
    assert [*curve["step"]][-1] == 900


def test_steps_before_an_exception_count_if_a_hook_of_the_script_ends_its_process(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain, os, sys
        sys.excepthook = lambda *_: os._exit(1)
        for _ in range(7):
            distrain.step(samples=2)
        raise ValueError("bad lr")
        """,
    )
    assert distrain("run", "train.py").returncode == 1
    found = only_run(runs_dir).summary()
    assert (found["steps"], found["samples"]) == (7, 14)


def test_unknown_samples_are_missing_and_not_zero(write: Write, distrain: Distrain) -> None:
    write("train.py", "import distrain\nfor _ in range(30):\n    distrain.step()\n")
    found = summary(distrain, "train.py")
    assert (found["steps"], found["samples"], found["samples_per_s"]) == (30, None, None)
    assert found["sources"]["samples"].startswith("not reported by the script")


def test_a_mistake_in_a_call_does_not_end_the_script(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain
        for value in ("text", [1, 2], None):
            distrain.log({"loss": value})
        distrain.log("no mapping")
        distrain.log_eval({"top1": "high", "loss": float("nan")}, samples=1)
        distrain.step(samples=2.0)
        distrain.log({"loss": 1.0})
        print("the end")
        """,
    )
    found = summary(distrain, "train.py")
    assert (found["status"], found["metrics"]) == ("completed", {"loss": 1.0})
    assert (found["steps"], found["eval"]) == (1, {"loss": None, "samples": 1})
    log = log_of(only_run(runs_dir))
    assert log.endswith("the end\n")
    assert log.count("further problems are not printed") == 1


def test_forked_and_spawned_children_report_nothing(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import multiprocessing
        import distrain

        def work(method):
            distrain.log({"child": 1})
            return distrain.init().rank

        if __name__ == "__main__":
            distrain.log({"parent": 1})
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.apply(work, (method,)))
        """,
    )
    found = summary(distrain, "train.py")
    assert found["metrics"] == {"parent": 1.0}
    assert log_of(only_run(runs_dir)) == "None\nNone\n"


def test_what_a_summary_writer_gets_is_recorded_once_and_not_in_children(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import os
        import distrain
        from tensorboardX import SummaryWriter

        writer = SummaryWriter("board")
        for step in range(1, 6):
            writer.add_scalar("loss", step, global_step=100 * step)
            writer.add_scalars("acc", {"train": 0.5, "val": 0.25}, 100 * step)
            writer.add_text("note", "text")
            distrain.log({"loss": step}, step=100 * step)
        if os.fork() == 0:
            writer.add_scalar("loss", 99, 600)
            os._exit(0)
        os.wait()
        try:
            writer.add_scalar("bad", "no number")
        except Exception as error:
            print(type(error).__name__)
        """,
    )
    found = summary(distrain, "train.py")
    record = only_run(runs_dir)
    assert found["metrics"] == {"loss": 5.0, "acc/train": 0.5, "acc/val": 0.25}, log_of(record)
    assert found["sources"]["values"] == "tensorboardX, distrain.log()"
    key = record.logged()["loss"][0]
    assert record.totals(LOGGED)[key]["finite"] == 5
    assert [*record.curve(LOGGED, key)["step"]][-1] == 500


def test_a_resumed_script_finds_the_folder_of_the_run_before(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(
        "train.py",
        """
        import distrain
        run = distrain.init()
        if run.previous_dir:
            print("continues", (run.previous_dir / "mine.pt").read_text())
        else:
            (run.dir / "mine.pt").write_text("from step 7")
        """,
    )
    assert distrain("run", "--name", "first", "train.py").returncode == 0
    resumed = distrain("resume", "first")
    assert resumed.stdout.startswith("continues from step 7\n"), resumed.stderr
    assert distrain("rerun", "first").returncode == 0


def test_the_script_of_the_page_reports(write: Write, distrain: Distrain) -> None:
    page = (ROOT / "docs" / "your-own-script.md").read_text()
    code = re.search(r"```python\n# reporting.py\n(.*?)```", page, re.DOTALL)
    assert code is not None
    write("reporting.py", code[1])
    found = summary(distrain, "reporting.py")
    assert (found["steps"], found["samples"], found["eval"]["samples"]) == (60, 1920, 640)
    assert found["metrics"]["loss"] > 0
