"""What a stop is said to do is what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distrain.runners.cli import run_presentation
from distrain.runners.cli.presentation import present
from distrain.runners.groups import Group
from distrain.runners.records.reader import Record
from distrain.runners.runs import Run
from tests.support.records import RunBuilder


@pytest.mark.parametrize(
    ("config", "of_a_run", "of_a_group"),
    [
        ({}, run_presentation.STOP, "stop with a checkpoint"),
        ({"checkpoint.keep": 0}, run_presentation.STOP_UNSAVED, "stop; no checkpoint is written"),
        (
            {"script": {"path": "train.py"}},
            run_presentation.STOP_SCRIPT,
            "are asked to stop, or else interrupted as by Ctrl-C",
        ),
    ],
)
def test_a_checkpoint_is_promised_only_where_one_is_written(
    tmp_path: Path, config: dict[str, Any], of_a_run: str, of_a_group: str
) -> None:
    run = Run(Record(RunBuilder(tmp_path, world=1, **config).dir))
    assert present(run).describe_stop(now=False) == of_a_run
    group = Group("20261124-120000-sweep-ab12", [run])
    assert present(group).describe_stop(now=False).startswith(f"its runs {of_a_group}")


def test_no_checkpoint_is_promised_of_a_run_that_is_stalled(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path, world=2).steps(4).stalled()
    assert present(Run(run.record)).describe_stop(now=False) == run_presentation.STOP_STALLED


def test_runs_of_a_group_stop_though_the_config_of_one_cannot_be_read(tmp_path: Path) -> None:
    runs = [Run(Record(RunBuilder(tmp_path, name, world=1).dir)) for name in ("a", "b")]
    group = present(Group("20261124-120000-sweep-ab12", runs))
    (runs[1].dir / "config.toml").write_text("strategy = [")
    assert group.describe_stop(now=True).startswith("its runs end at once")
    assert group.describe_stop(now=False).startswith("its runs stop with a checkpoint")
    (runs[0].dir / "config.toml").unlink()
    unread = present(Group("20261124-120000-sweep-ab12", [Run(Record(run.dir)) for run in runs]))
    assert unread.describe_stop(now=False).startswith("its runs stop; no checkpoint is written")
