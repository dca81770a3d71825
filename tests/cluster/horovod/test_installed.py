"""The installed Horovod: it can do what it reports, and our changes to it work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from distrain.runners.doctor.capabilities import LAUNCHERS, STRATEGIES, HostFacts
from distrain.runners.doctor.survey import versions
from distrain.runners.horovod import source
from distrain.runners.horovod.install import Installation
from distrain.runners.horovod.presence import presence

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
JOB_S = 200

AVERAGE = """
import horovod.torch as hvd
import torch
hvd.init()
mean = hvd.allreduce(torch.arange(5.0) * (hvd.rank() + 1))
assert torch.equal(mean, torch.arange(5.0) * 1.5), mean
print(f"rank {hvd.rank()} of {hvd.size()} is right", flush=True)
"""

LATE = """
import time
import horovod.torch as hvd
import torch
hvd.init()
hvd.allreduce(torch.ones(1), name="before")
if hvd.rank() == 1:
    time.sleep(600)
hvd.allreduce(torch.ones(1), name="the_late_one")
"""


def two_ranks(script: Path, code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run code in two ranks that `horovodrun` starts."""
    script.write_text(code)
    return subprocess.run(
        [HOROVODRUN, "--gloo", "-np", "2", sys.executable, script],
        env={**os.environ, "OMP_NUM_THREADS": "1", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=JOB_S,
    )


def test_two_ranks_average_over_gloo(tmp_path: Path) -> None:
    done = two_ranks(tmp_path / "average.py", AVERAGE)
    assert done.returncode == 0, done.stdout
    assert "rank 0 of 2 is right" in done.stdout
    assert "rank 1 of 2 is right" in done.stdout


def test_a_missing_rank_is_named_and_ends_the_job(tmp_path: Path) -> None:
    """Without our change of its Gloo controller Horovod waits forever and reports nothing."""
    limits = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3",
    }
    done = two_ranks(tmp_path / "late.py", LATE, **limits)
    assert done.returncode != 0
    assert re.search(r"1!?: \[allreduce\.the_late_one\]", done.stdout), done.stdout


def test_a_working_horovod_is_not_installed_again() -> None:
    stages: list[str] = []
    result = Installation(lambda progress: stages.append(progress.stage)).run()
    assert result.endswith("is installed and works")
    assert stages == ["checking the installed Horovod"]


def test_the_doctor_reports_horovod_as_usable() -> None:
    facts = HostFacts(torch="2", backends={"gloo": True}, horovod=presence())
    assert STRATEGIES["horovod"](facts).usable
    assert "gloo" in STRATEGIES["horovod"](facts).why
    assert LAUNCHERS["horovodrun"](facts).usable
    assert (versions(facts)["horovod"] or "").startswith(source.VERSION)
