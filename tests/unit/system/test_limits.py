"""Limits of the user's and of containers: those that refuse something are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from distrain.runners.system import limits
from distrain.runners.system.host import count_cores
from distrain.runners.system.telemetry import sample_host
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


def use_groups(
    folder: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str]
) -> None:
    """Let `folder` be the control groups of this process."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "groups").write_text(groups)
    monkeypatch.setattr(limits, "CONTROL_GROUPS", folder)
    monkeypatch.setattr(limits, "OWN_GROUPS", folder / "groups")


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        # Version 2: the groups lie in each other; a container may see only its own.
        ("0::/job/step\n", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/on/the/host\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        # Version 1.
        (
            "3:cpuset:/\n2:cpu,cpuacct:/docker/1\n",
            {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ("", {}, 8),
    ],
)
def test_a_container_has_as_many_cores_as_it_has_cpu_time(
    groups: str,
    files: dict[str, str],
    cores: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_groups(tmp_path, monkeypatch, groups, files)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    assert count_cores() == cores


STAT = "anon 5\nactive_file 100\ninactive_file 200\ntotal_active_file 10\ntotal_inactive_file 20\n"
UNLIMITED = "9223372036854771712\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (
            "0::/job/step\n",
            {
                "job/memory.max": "4096\n",
                "job/memory.current": "1300\n",
                "job/memory.stat": STAT,
                "job/step/memory.max": "max\n",
                "job/step/memory.current": "1000\n",
            },
            (4096, 1000),
        ),
        ("0::/on/the/host\n", {"memory.max": "max\n", "memory.current": "1000\n"}, None),
        (
            "3:cpuset:/\n2:memory:/docker/1\n",
            {
                "memory/memory.limit_in_bytes": "4096\n",
                "memory/memory.usage_in_bytes": "1030\n",
                "memory/memory.stat": STAT,
            },
            (4096, 1000),
        ),
        (
            "1:memory:/\n",
            {"memory/memory.limit_in_bytes": UNLIMITED, "memory/memory.usage_in_bytes": "1000\n"},
            None,
        ),
        ("", {}, None),
    ],
)
def test_the_memory_of_a_container_is_what_it_may_have(
    groups: str,
    files: dict[str, str],
    expected: tuple[int, int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_groups(tmp_path, monkeypatch, groups, files)
    sample = sample_host()
    if expected:
        assert (sample.memory_total, sample.memory_used) == expected
    else:
        assert sample.memory_total == psutil.virtual_memory().total
