"""The report of a machine with a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def doctor(*words: str) -> str:
    command = [sys.executable, "-m", "distrain", "doctor", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout


def test_the_gpu_and_what_it_can_do_are_listed() -> None:
    report: dict[str, Any] = json.loads(doctor("--json"))
    assert report["devices"]["gpus"][0]["memory"] > 0
    assert report["backends"]["nccl"]["usable"]
    cells = {
        (column["backend"], column["device"]): column["cells"] for column in report["operations"]
    }
    assert cells["gloo", "cuda"]["all_reduce"]["answer"] == "yes"


def test_reasons_of_torch_are_printed_as_they_are() -> None:
    assert "gloo cuda" in doctor()
