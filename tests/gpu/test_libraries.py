"""The programs of docs/integrations.md train on a GPU, where their libraries are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain import RunConfig, launch
from tests.gpu.conftest import LONGEST_S
from tests.integrations.test_docs import PROGRAMS

NEEDS = {"trainer.py": "transformers", "module.py": "lightning", "loop.py": "accelerate"}


@pytest.mark.parametrize("name", NEEDS)
def test_a_program_of_the_documentation_trains_on_the_gpu(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS[name])
    script = tmp_path / name
    script.write_text(PROGRAMS[name])
    config = RunConfig.from_dict({"script": {"path": str(script), "cwd": str(tmp_path)}})
    run = launch(config, runs_dir=tmp_path / "runs")
    summary = run.wait(LONGEST_S)
    log = (run.record.dir / "logs" / "rank-0.log").read_text()
    assert summary["status"] == "completed", log
    assert summary["steps"] > 0
    assert summary["samples"] > 0
