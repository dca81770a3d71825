"""Given recorded runs, when they are listed, shown, exported and removed."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from distrain.runners.bench import candidates, make, plans
from distrain.runners.bench.folder import create_bench
from distrain.runners.config.trust import remember
from distrain.runners.errors import ConfigError, RunsFolderError
from distrain.runners.protocol.events import Attempt, Job
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.records.state import RunError, read_state, write_state

from .conftest import Distrain, SampledRun

Fabricate = Callable[..., SampledRun]


def test_an_empty_folder_names_the_next_command(distrain: Distrain) -> None:
    listed = distrain("runs")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "`distrain run ddp` starts one" in listed.stderr
    assert json.loads(distrain("runs", "--json").stdout) == []


def test_runs_are_a_table_newest_first(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    newer = fabricate("second").steps(3)
    head, *lines = distrain("runs").stdout.splitlines()
    assert head.split()[:3] == ["run", "name", "status"]
    assert [line.split()[:3] for line in lines] == [
        [newer.id, "second", "running"],
        [finished.id, "first", "completed"],
    ]
    assert "top1 95.55 %" in lines[1]
    assert "1,280" in lines[1]


def test_the_keys_of_runs_as_json(distrain: Distrain, finished: SampledRun) -> None:
    (run,) = json.loads(distrain("runs", "--json").stdout)
    assert run["run_id"] == finished.id
    assert run["samples"] == 40 * 2 * 64
    assert run["eval"] == {"loss": 0.5, "top1": 0.9555, "samples": 100}
    assert {"dir", "status", "strategy", "launcher", "precision", "world_size", "devices"} < set(
        run
    )
    assert {"name", "created", "parent", "epochs", "steps", "samples_per_s"} < set(run)


def test_a_slurm_run_is_shown_with_the_state_of_its_job(
    distrain: Distrain, fabricate: Fabricate
) -> None:
    run = fabricate("big").steps(3)
    run.writer.set_state(status="starting", hosts=["node-1", "node-2"], attempts=1, job=PENDING)
    listed = distrain("runs")
    assert "starting PENDING" in listed.stdout
    job_text = "job 4711 PENDING (Resources), 3 jobs ahead, requeued 1 time"
    assert f"{run.id}: {job_text}" in listed.stderr
    page = distrain("show", "big").stdout
    assert job_text in page
    assert "node-1, node-2" in page
    output = json.loads(distrain("show", "big", "--json").stdout)
    assert output["job"]["id"] == "4711"
    assert (output["hosts"], output["attempts"]) == (["node-1", "node-2"], 1)


def test_a_stalled_run_shows_where_each_rank_is(distrain: Distrain, fabricate: Fabricate) -> None:
    since = time.time() - 30
    run = fabricate("hung").steps(3)
    absent = RankPosition(
        rank=1, since=since, step=3, phase="data", call="data.py:7 in \x1b[2Jload"
    )
    waits = RankPosition(
        rank=0, since=since, step=3, phase="backward", collective="gloo:all_reduce", sequence=28
    )
    stall = Stall(since=since, ranks=[1], waiting="backward", positions=[waits, absent])
    run.writer.set_state(status="running", stall=stall)
    assert " stalled " in distrain("runs").stdout
    page = distrain("show", "hung").stdout
    assert page.startswith("stalled ")
    assert "\x1b" not in page
    assert re.search(
        r"no progress for 3\d\.\d s: rank 1 is in data \(data\.py:7 in .*load\);", page
    )
    table = page[page.index("pending collective") :]
    assert table.index("in data") < table.index("28 gloo:all_reduce")
    output = json.loads(distrain("show", "hung", "--json").stdout)
    assert output["status"] == "running"
    found = output["stall"]
    assert (found["ranks"], found["phase"], found["waiting"]) == ([1], "data", "backward")
    assert found["since_s"] > 29
    assert [each["sequence"] for each in found["positions"]] == [28, None]


def test_stacks_of_a_run_without_ranks_is_one_sentence(
    distrain: Distrain, fabricate: Fabricate
) -> None:
    run = fabricate("waiting", begun=False)
    run.writer.set_state(status="queued", waiting_for=["GPU 0: run a has it"])
    done = distrain("stacks", "waiting")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"distrain: run {run.id} is queued, and none of its ranks is connected\n"


def test_a_run_that_repeats_lost_steps_is_recovering(
    distrain: Distrain, fabricate: Fabricate
) -> None:
    run = fabricate("restarted").steps(25)
    run.writer.add(Attempt(time=run.now, number=1, step=10, lost=25, reason="rank 1 failed"))
    run.writer.set_state(status="running", attempts=1)
    run.step = 10
    run.steps(5)
    assert " recovering " in distrain("runs", "--filter", "status:recovering").stdout
    run.steps(10)
    assert " running " in distrain("runs").stdout


RUNNING = Job(time=1000.0, id="4711", state="RUNNING", nodes=["a", "b"], ends=time.time() + 9000)


@pytest.fixture
def unsupervised(fabricate: Fabricate) -> SampledRun:
    """Return a run whose job continued when its supervisor was killed."""
    with subprocess.Popen(["true"]) as gone:
        pass
    run = fabricate("far", launcher="slurm", **{"slurm.report": "files"}).steps(3)
    run.writer.set_state(job=RUNNING, supervisor_pid=gone.pid)
    run.writer.close()
    return run


def test_a_run_whose_job_continues_without_a_supervisor_is_live(
    distrain: Distrain, unsupervised: SampledRun
) -> None:
    sentence = (
        "the supervisor is gone while the job runs on; "
        f"recover it with `distrain watch {unsupervised.id}`"
    )
    listed = distrain("runs")
    assert " running " in listed.stdout
    assert listed.stderr == f"{unsupervised.id}: {sentence}\n"
    page = distrain("show", "far").stdout
    assert page.startswith("running ")
    assert sentence in page
    assert "left, on 2 nodes" in page
    refused = distrain("rm", "far")
    assert refused.returncode == 1
    assert f"`distrain stop {unsupervised.id}` first" in refused.stderr


def test_a_run_whose_job_has_ended_is_not_live(
    distrain: Distrain, unsupervised: SampledRun
) -> None:
    over = structs.replace(RUNNING, state="COMPLETED", ended="job 4711 completed")
    write_state(unsupervised.dir, structs.replace(read_state(unsupervised.dir), job=over))
    assert distrain("show", "far").stdout.startswith("failed ")


@pytest.mark.parametrize("how", ["stop", "watch"])
def test_a_run_without_a_supervisor_is_recovered_and_ends(
    how: str, distrain: Distrain, unsupervised: SampledRun, tmp_path: Path
) -> None:
    before = read_state(unsupervised.dir)
    over = tmp_path / "over"
    if how == "watch":
        over.touch()
    shown = f"JobId=4711 JobState=$(test -e {over} && echo CANCELLED || echo RUNNING)"
    for name, does in (("scontrol", f'echo "{shown}"'), ("scancel", f"touch {over}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    refused = distrain(how, "far", PATH=path)
    assert refused.returncode == 2, "another user may have written this record"
    assert f"`distrain watch {unsupervised.id} --trust`" in refused.stderr
    if how == "stop":
        remember(unsupervised.record.config, str(tmp_path), unsupervised.id)
        output = distrain("stop", "far", "--now", "--wait", PATH=path)
        assert "stopped: stopped immediately on request" in output.stderr
    else:
        output = distrain("watch", "far", "--trust", PATH=path)
        assert "job 4711 was cancelled outside distrain" in output.stderr
        assert "the supervisor was gone" in output.stderr
    state = read_state(unsupervised.dir)
    assert state.job is not None
    assert (state.started, state.job.state) == (before.started, "CANCELLED")
    assert "recovered: the previous supervisor was gone" in distrain("show", "far").stdout


def test_nothing_of_an_ended_run_is_shown_as_live(distrain: Distrain, fabricate: Fabricate) -> None:
    run = fabricate("dead").steps(3)
    run.writer.set_state(job=RUNNING)
    run.end("stopped", reason="stopped at once")
    page = distrain("show", "dead").stdout
    assert "job 4711, RUNNING when last seen" in page
    assert " left" not in page
    assert page.count(" gone ") == 2
    assert " stopped " in distrain("runs").stdout


PENDING = Job(
    time=1000.0,
    id="4711",
    state="PENDING",
    reason="Resources",
    jobs_ahead=3,
    starts=2000.0,
    restarts=1,
)


def test_a_broken_record_is_named_and_the_others_listed(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    broken = fabricate().end()
    (broken.dir / "run.json").write_text("{")
    listed = distrain("runs")
    assert listed.returncode == 0
    assert finished.id in listed.stdout
    assert broken.id in listed.stderr
    (finished.dir / "run.json").write_text("{")
    listed = distrain("runs")
    assert listed.stdout == ""
    assert "no runs" not in listed.stderr


def test_a_damaged_database_does_not_hide_the_other_runs(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    live = fabricate("live").steps(3)
    database = live.dir / "metrics.db"
    live.writer.close()
    database.write_bytes(database.read_bytes()[:100] + b"\0" * 20_000)
    listed = distrain("runs")
    assert (listed.returncode, finished.id in listed.stdout) == (0, True)
    assert f"{live.dir} is not a record: its metrics.db cannot be read" in listed.stderr


def test_a_run_is_found_by_id_beginning_name_and_latest(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    second = fabricate("second").end()
    for wanted, run in (
        (finished.id, finished),
        (finished.id[:-1], finished),
        ("first", finished),
        ("latest", second),
    ):
        assert json.loads(distrain("show", wanted, "--json").stdout)["run_id"] == run.id
    assert "is ambiguous" in distrain("show", "2").stderr


def test_a_bench_is_found_like_a_run_but_commands_for_runs_refuse_it(
    distrain: Distrain, runs_dir: Path, finished: SampledRun
) -> None:
    made = make(candidates(["single"], {}), {})
    how = {"name": "six", "cwd": str(runs_dir), "command": [], "queue": False}
    bench = create_bench(runs_dir, made, plans(made), **how)
    for wanted in (bench.name, bench.name[:-1], "six", "latest", str(bench)):
        assert json.loads(distrain("show", wanted, "--json").stdout)["bench_id"] == bench.name
    both = distrain("show", "2")
    assert both.returncode == 2
    assert f"it matches {finished.id}, {bench.name}" in both.stderr
    for arguments in (
        ["logs", "six"],
        ["export", "six", "--to", "csv"],
        ["compare", "first", "six"],
    ):
        refused = distrain(*arguments)
        assert refused.returncode == 1
        assert f"{bench.name} is a bench; its runs are in {bench / 'runs'}" in refused.stderr
    assert json.loads(distrain("export", "latest", "--to", "jsonl").stdout.splitlines()[0])


def test_a_name_with_control_characters_is_refused(runs_dir: Path) -> None:
    made = make(candidates(["single"], {}), {})
    how = {"cwd": str(runs_dir), "command": [], "queue": False}
    with pytest.raises(ConfigError, match="must be printable text, not"):
        create_bench(runs_dir, made, plans(made), name="a\x1b[31mb\nc", **how)
    assert not runs_dir.exists()


def test_a_bench_that_does_not_fit_on_the_disk_leaves_no_folder(runs_dir: Path) -> None:
    made = make(candidates(["single"], {}), {})
    how = {"name": "", "cwd": str(runs_dir), "command": [], "queue": False}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(RunsFolderError, match="File too large"):
            create_bench(runs_dir, made, plans(made), **how)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(runs_dir.iterdir()) == []


def test_show_prints_a_page(distrain: Distrain, finished: SampledRun) -> None:
    page = distrain("show", "first").stdout
    for text in (
        "completed",
        "128 = 64 + 64 per rank",
        "train.epochs  4",
        "40 of 40, 4 full epochs",
        "1,280 samples/s",
        "top1 95.55 %",
        "mind the gap",
        "cpu:1",
        "completed all steps",
    ):
        assert text in page
    assert "\x1b" not in page


def test_show_as_json_adds_to_the_summary(distrain: Distrain, finished: SampledRun) -> None:
    shown = json.loads(distrain("show", "first", "--json").stdout)
    assert shown["supervisor_pid"] > 0
    wanted = {"rank": 1, "pid": 1001, "device": "cpu:1", "host": "here", "step": 40}
    assert wanted.items() <= shown["ranks"][1].items()
    assert shown["notices"] == ["mind the gap"]
    assert [event["step"] for event in shown["evaluations"]] == [20, 40]
    assert [event["best"] for event in shown["checkpoints"]] == [True, True]
    assert shown["plan"]["batch"] == [64, 64]
    assert shown["facts"]["parameters"] == 26_122


def test_show_prints_a_failure_with_its_traceback(distrain: Distrain, fabricate: Fabricate) -> None:
    error = RunError(
        rank=1,
        type="ValueError",
        message="no",
        traceback="Traceback:\n  here",
        step=7,
        secondary=[0],
    )
    run = fabricate().steps(7).end("failed", error=error)
    page = distrain("show", run.id).stdout
    assert "rank 1 failed after step 7: ValueError: no" in page
    assert "    Traceback:\n      here" in page
    assert "taken down with it  rank 0" in page
    assert json.loads(distrain("show", run.id, "--json").stdout)["error"]["collateral"] == [0]


def test_export_streams_to_stdout_or_a_file(
    distrain: Distrain, finished: SampledRun, tmp_path: Path
) -> None:
    printed = distrain("export", "first", "--to", "csv").stdout
    assert distrain("export", "first", "--to", "csv", "--out", "-").stdout == printed
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == 80
    assert sum(int(row["samples"]) for row in rows) == 5120
    done = distrain("export", "first", "--to", "csv", "--out", "out.csv")
    assert (done.returncode, done.stdout) == (0, "")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 81


def test_rm_moves_to_the_trash_and_prints_how_to_undo(
    distrain: Distrain, finished: SampledRun
) -> None:
    removed = distrain("rm", "latest")
    assert (removed.returncode, removed.stdout) == (0, "")
    assert not finished.dir.exists()
    undo = removed.stderr.partition("undo: distrain ")[2].split()
    assert undo == ["rm", "--undo", finished.id]
    assert distrain(*undo).returncode == 0
    assert json.loads(distrain("show", "first", "--json").stdout)["run_id"] == finished.id


def test_rm_is_undone_by_name_too(distrain: Distrain, finished: SampledRun) -> None:
    assert distrain("rm", "first").returncode == 0
    missing = distrain("rm", "--undo", "second")
    assert missing.returncode == 1
    assert "there is no second in the trash" in missing.stderr
    assert distrain("rm", "--undo", "first").stderr == f"restored {finished.id}\n"
    assert finished.dir.exists()


def test_rm_removes_all_or_nothing(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    live = fabricate("live").steps(1)
    refused = distrain("rm", "first", "live")
    assert refused.returncode == 1
    assert f"`distrain stop {live.id}` first" in refused.stderr
    assert finished.dir.exists()


def test_stop_of_an_ended_run_is_one_sentence(distrain: Distrain, finished: SampledRun) -> None:
    done = distrain("stop", "latest")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"distrain: run {finished.id} has ended: completed\n"


def test_resume_without_a_checkpoint_is_one_sentence(
    distrain: Distrain, finished: SampledRun
) -> None:
    done = distrain("resume", "latest", "--detach")
    assert done.returncode == 1
    assert "has no checkpoint to resume from" in done.stderr


@pytest.mark.parametrize("more", [(), ("--set", "train.epochs=3"), ("--set", "train.max_steps=40")])
def test_resume_of_a_completed_run_is_one_sentence(
    distrain: Distrain, fabricate: Callable[..., SampledRun], more: tuple[str, ...]
) -> None:
    run = fabricate("done").steps(40).end()
    (run.dir / "checkpoints" / "last.pt").touch()
    done = distrain("resume", "done", "--detach", *more)
    assert done.returncode == 2
    assert f"run {run.id} has already completed 4" in done.stderr


def test_runs_are_filtered_by_config_metric_and_tag(
    distrain: Distrain, finished: SampledRun, fabricate: Fabricate
) -> None:
    slow = fabricate("slow", **{"train.lr": 0.001}).steps(3)
    slow.note(tags=["sweep"])
    for expression, expected in (
        ("lr<0.01", [slow.id]),
        ("top1>95%", [finished.id]),
        ("tag!=sweep", [finished.id]),
        ("status:running tag:sweep strategy=ddp age<1h", [slow.id]),
    ):
        listed = distrain("runs", "--json", "--filter", expression)
        assert [run["run_id"] for run in json.loads(listed.stdout)] == expected, expression
    none = distrain("runs", "--filter", "lr>1")
    assert (none.stdout, none.stderr) == ("", "none of 2 runs matches this filter\n")
    wrong = distrain("runs", "--filter", "lrr>1")
    assert wrong.returncode == 2
    assert "no run has the key lrr; did you mean lr?" in wrong.stderr
