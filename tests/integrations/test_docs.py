"""The programs of docs/integrations.md run, and report what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Write, log_of, only_run
from tests.support import ROOT

from .conftest import curve

BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAMS = dict(BLOCK.findall((ROOT / "docs" / "integrations.md").read_text()))


@pytest.mark.parametrize(
    ("name", "evaluated"), [("trainer.py", {"loss": 20}), ("module.py", {"error": 64})]
)
def test_a_program_reports_steps_samples_and_evaluations(
    name: str, evaluated: dict[str, int], write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write(name, PROGRAMS[name])
    found = json.loads(distrain("run", "--json", name).stdout)
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    # 3 epochs of 64 samples in batches of 8.
    assert (found["steps"], found["samples"]) == (24, 192)
    ((metric, samples),) = evaluated.items()
    assert found["eval"] == {metric: pytest.approx(found["eval"][metric]), "samples": samples}
    assert curve(record, "loss")[0] == 24


def test_the_loop_reports_the_steps_of_both_ranks_and_what_rank_0_logs(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("loop.py", PROGRAMS["loop.py"])
    # As the page says of ranks on the CPU.
    done = distrain("run", "--json", "--devices", "cpu:2", "loop.py", ACCELERATE_USE_CPU="true")
    found = json.loads(done.stdout)
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    assert (found["world_size"], found["steps"], found["samples"]) == (2, 4, 64)
    assert {*record.logged()["loss"]} == {0}
    assert curve(record, "loss")[::2] == (4, 3)
    assert record.script_settings().config == {"lr": 0.1}
