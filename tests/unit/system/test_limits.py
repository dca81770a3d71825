"""A limit of the user's is named where the system refuses something because of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

LAUNCH = (
    "from distrain import launch, load_preset;"
    "launch(load_preset('single', {'devices': 'cpu:1'}), runs_dir='runs')"
)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("-n 16", "Too many open files (`ulimit -n` is 16)"),
        ("-f 16", "(`ulimit -f` is 16)"),
        ("-f 0", "File too large (`ulimit -f` is 0)"),
    ],
)
def test_a_launch_names_the_limit_that_refuses_it(
    limit: str, expected: str, tmp_path: Path
) -> None:
    command = f'ulimit {limit}; exec "$0" -c "$1"'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, LAUNCH],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert expected in last


def test_a_kill_at_the_limit_of_cpu_time_is_not_only_called_out_of_memory() -> None:
    code = "from distrain.runners.supervision.run_errors import _who_kills; print(_who_kills())"
    command = f"ulimit -t 100; exec '{sys.executable}' -c '{code}'"
    found = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == (
        "manually or by the OOM killer, or at the limit of 100 s of CPU time, `ulimit -t`"
    )
