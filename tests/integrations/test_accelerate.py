"""Given a loop with Accelerate, when it runs, then what it logs is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Write, log_of, only_run, summary

from .conftest import curve

LOGS = """
    import sys
    from accelerate import Accelerator

    trackers = ["tensorboard"]
    if "--ours" in sys.argv:
        from distrain.integrations.accelerate import DistrainTracker
        trackers.append(DistrainTracker())
    accelerator = Accelerator(cpu=True, log_with=trackers, project_dir=".")
    accelerator.init_trackers("project", config={"lr": 0.1})
    for step in range(5):
        accelerator.log({"loss": step + 1, "note": "text"}, step=step)
    accelerator.end_training()
"""


@pytest.mark.parametrize("ours", [False, True], ids=["unchanged", "tracker"])
def test_what_trackers_get_is_recorded_once(
    ours: bool, write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", LOGS)
    found = summary(distrain, "train.py", *(["--ours"] if ours else []))
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    assert found["metrics"] == {"loss": 5.0}
    assert curve(record, "loss") == (5, 15.0, 4)
    assert record.script_settings().config == ({"lr": 0.1} if ours else {})
