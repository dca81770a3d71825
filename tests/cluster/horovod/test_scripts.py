"""A user's own script that uses Horovod."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distrain import Run, RunConfig, launch
from tests.integration.runs.conftest import wait_until
from tests.support.programs import SAVES

SUM = """
import horovod.torch as hvd
import torch

hvd.init()
total = hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum)
print("sum", total.item(), flush=True)
"""


@pytest.fixture
def launch_script(user_folder: Path) -> Callable[..., Run]:
    def launch_script(program: str, **horovod: str) -> Run:
        (user_folder / "train.py").write_text(program)
        script = {"script": {"path": "train.py"}, "launcher": "horovodrun", "devices": "cpu:2"}
        return launch(RunConfig.from_dict({**script, "horovod": horovod}))

    return launch_script


def outputs(run: Run) -> list[str]:
    return [path.read_text() for path in sorted((run.dir / "logs").glob("rank-*.log"))]


@pytest.mark.parametrize("via", ["distrain", "horovodrun"])
def test_a_script_with_horovod_runs(via: str, launch_script: Callable[..., Run]) -> None:
    run = launch_script(SUM, via=via)
    assert run.wait(120)["status"] == "completed", run.reason
    assert ["sum 3.0" in output for output in outputs(run)] == [True, True]


def test_a_stop_interrupts_its_ranks(launch_script: Callable[..., Run]) -> None:
    run = launch_script(SAVES)
    wait_until(lambda: outputs(run) == ["ready\n", "ready\n"])
    run.stop()
    assert run.wait(60)["status"] == "stopped"
    assert ["saved" in output for output in outputs(run)] == [True, True]
