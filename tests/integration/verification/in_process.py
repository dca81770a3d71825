"""Verifies many configs in few processes: ranks are shared, and the comparison runs in the caller.

A real verification launches each run and compares it in a process of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import torch

from distrain.runners.config.planning import plan_here
from distrain.runners.records.folder import create_run
from distrain.runners.records.reader import Record
from distrain.runners.records.writer import RecordWriter
from distrain.runners.verification.cases import Case
from distrain.runners.verification.compare import ReferenceComparer
from distrain.runners.verification.result import VerificationResult
from tests.integration.engine.ranks import run_on_ranks


def verify_in_process(
    cases: Mapping[str, Case], ranks: int, steps: Sequence[int], folder: Path
) -> dict[str, VerificationResult]:
    """Return the results of cases for this number of ranks; `steps` are compared."""
    folders = [
        create_run(folder, case.config, plan=plan_here(case.config), word="case")
        for case in cases.values()
    ]
    configs = [case.config for case in cases.values()]
    outcomes = run_on_ranks(ranks, list(zip(configs, folders, strict=True)), tapped=steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    for (name, case), path, (leader, *_) in zip(cases.items(), folders, outcomes, strict=True):
        with closing(RecordWriter(path)) as writer:
            for evaluation in leader.evaluations:
                writer.add(evaluation)
        comparer = ReferenceComparer(case.config, plan_here(case.config), Record(path))
        found[name] = msgspec.structs.replace(
            case.blank, **msgspec.structs.asdict(comparer.compare())
        )
        shutil.rmtree(path)
    torch.set_num_threads(threads)
    return found
