"""The tables of `doctor`."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from distrain.runners.cli.doctor import render
from distrain.runners.doctor import survey
from distrain.runners.doctor.collectives import OPERATIONS, OperationResult


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The report of this machine, where all operations that can be tried work."""
    results = dict.fromkeys(OPERATIONS, OperationResult("yes"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(survey, "try_operations", lambda *_: results)
        return survey.run_survey()


def rendered(report: dict[str, Any]) -> str:
    output = io.StringIO()
    render(report, Console(file=output, width=80))
    return output.getvalue()


def test_the_tables_fit_80_columns(report: dict[str, Any]) -> None:
    output = rendered(report)
    lines = output.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    [row] = [line.split() for line in lines if line.strip().startswith("reduce_scatter")]
    assert row[:2] == ["reduce_scatter", "yes"]
    assert "…" not in output
    assert not any(line == after == "" for line, after in pairwise(map(str.rstrip, lines)))


def test_hangs_and_failures_are_explained_below_the_table(report: dict[str, Any]) -> None:
    worse = json.loads(json.dumps(report))
    cells = worse["operations"][0]["cells"]
    cells["send"] = {"answer": "hangs", "reason": "no result within 15 s"}
    cells["recv"] = {"answer": "hangs", "reason": "no result within 15 s"}
    cells["gather"] = {"answer": "no", "reason": "wrong result"}
    error = "[/gloo/tcp/pair.cc:339] writev [::1]: Bad address"
    cells["broadcast"] = {"answer": "no", "reason": error}
    worse["backends"]["mpi"]["why"] = "[/pt] is no markup"
    output = rendered(worse)
    assert "send, recv: hangs, no result within 15 s" in output
    assert "broadcast: no, [/gloo/tcp/pair.cc:339] writev [::1]: Bad address" in output
    assert "[/pt] is no markup" in output
    assert "gather: no, wrong result" in output
