"""Groups of runs, apart from what runs do."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from distrain import Record, Run
from distrain.runners.cli import main
from distrain.runners.cli.group_presentation import GroupLines, GroupPicture
from distrain.runners.errors import DistrainError
from distrain.runners.groups import Group
from tests.support.records import RunBuilder

TIMEOUT_S = 60


def test_runs_of_a_group_are_stopped_at_the_same_time_and_each_problem_is_reported(
    tmp_path: Path,
) -> None:
    """A run whose supervisor is suspended does not answer for seconds; the others need not wait."""
    meeting = Barrier(2)
    order = []

    def run(name: str, status: str, problem: str = "") -> Any:
        def stop(now: bool) -> None:
            if status != "queued":
                meeting.wait(TIMEOUT_S)
            order.append(name)
            if problem:
                raise DistrainError(problem)

        has_answered = {
            "is_live": True,
            "is_starting": False,
            "dir": tmp_path,
            "runs_dir": tmp_path,
        }
        return SimpleNamespace(id=name, status=status, stop=stop, **has_answered)

    silent = run("silent", "running", "does not answer")
    group = Group("sweep", [silent, run("other", "running"), run("waiting", "queued")])
    with pytest.raises(DistrainError, match=r"^does not answer$"):
        group.stop()
    assert order[0] == "waiting"
    assert {*order} == {"silent", "other", "waiting"}


def test_a_run_of_a_group_that_is_being_launched_is_stopped_once_it_listens(tmp_path: Path) -> None:
    run = SimpleNamespace(id="a", status="starting", is_live=True, is_starting=True)
    run.dir = run.runs_dir = tmp_path
    tries = []

    def stop(now: bool) -> None:
        tries.append(now)
        if len(tries) < 3:
            raise DistrainError("is still starting")
        run.is_live = False

    run.stop = stop
    Group("sweep", [run]).stop(now=True)  # type: ignore[list-item]
    assert tries == [True, True, True]


def test_a_run_that_is_removed_leaves_its_group(tmp_path: Path) -> None:
    name = "20261124-165250-lr-sweep-2ami"
    runs = [Run(Record(RunBuilder(tmp_path).end(group=name).dir)) for _ in range(2)]
    group = Group(name, runs)
    runs[0].remove()
    assert (group.runs, group.reason) == ([runs[1]], "1 of 1 run completed")
    runs[1].remove()
    with pytest.raises(DistrainError, match=r"^all runs of group .* were removed$"):
        _ = group.status


def test_a_group_is_removed_and_restored_as_a_whole_and_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = "20261124-165250-lr-sweep-2ami"
    runs = [RunBuilder(tmp_path).end(group=group).id for _ in range(2)]
    options = ["lr-sweep", "--runs-dir", str(tmp_path)]
    for command in ("rerun", "resume", "logs"):
        assert main([command, *options]) == 2
        sentence = f"distrain: {group} is a group of 2 runs: name one of them; "
        assert capsys.readouterr().err == f"{sentence}`distrain show lr-sweep` lists them\n"
    assert main(["rm", *options]) == 0
    assert not any((tmp_path / run).exists() for run in runs)
    assert main(["rm", "--undo", *options]) == 0
    assert all((tmp_path / run).exists() for run in runs)


def test_the_picture_of_a_sweep_tells_what_its_next_run_waits_for(tmp_path: Path) -> None:
    builders = [RunBuilder(tmp_path, name, begun=False) for name in ("lr-0.1", "lr-0.05")]
    reasons = ["CPU: 2 cores in use by run gpt; needs 2 of 2", "CPU: run lr-0.1 is ahead"]
    for builder, reason in zip(builders, reasons, strict=True):
        builder.writer.set_state(status="queued", waiting_for=[reason])
    group = Group("sweep", [Run(builder.record) for builder in builders])
    output = StringIO()
    picture = GroupPicture(group, output)
    picture.update()
    picture.close()
    assert output.getvalue().endswith(f"\nlr-0.1 is waiting: {reasons[0]}")
    assert reasons[1] not in output.getvalue()


def test_a_sweep_names_its_run_that_stands_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "20261124-165250-lr-sweep-2ami"
    builder = RunBuilder(tmp_path, "lr-0.1")
    builder.writer.set_state(group=name)
    group = Group(name, [Run(builder.record)])
    lines, picture = StringIO(), StringIO()
    printed, painted = GroupLines(group, lines, 3600), GroupPicture(group, picture)
    printed.update()
    builder.stalled()
    for view in (printed, painted):
        view.update()
        view.close()
    assert main(["show", "lr-sweep", "--runs-dir", str(tmp_path)]) == 0
    for shown in (lines.getvalue(), picture.getvalue(), capsys.readouterr().out):
        assert "stalled" in shown
        assert re.search(r"lr-0\.1.* no progress for .*: rank 1 is in ", shown)
    builder.writer.set_state(stall=None, reason="the supervisor is suspended")
    printed.update()
    assert lines.getvalue().endswith("running     lr-0.1  the supervisor is suspended\n")
