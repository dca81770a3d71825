"""Fuzz all targets: `python -m tests.fuzz`, bounded by time, or with --full by the full counts.

A full run writes tests/fuzz/results.json and docs/fuzzing.md. `--minimise` replaces the corpora by
the inputs that are needed to cover the same code, of the corpora and of all runs so far.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz import page
from tests.fuzz.page import FULL, HERE

SHORT_S = 60.0  # of each target
PROCESSES_OF_RECORDS = 10  # in a full run
KEPT = Path(".fuzz")  # in the current folder: new inputs of all runs, and what they found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--minimise", action="store_true")
    arguments = parser.parse_args()
    shutil.rmtree(KEPT / "out", ignore_errors=True)
    cores = len(os.sched_getaffinity(0))
    jobs = [(target, 0) for target in FULL]
    if arguments.minimise:
        for target in FULL:
            _minimise(target)
        return 0
    if arguments.full:  # the target with the most inputs has a process for each core but one
        jobs[:1] = [("decoder", number) for number in range(max(1, cores - 1))]
        # One after another: tensorboardX keeps what it has exported until its process ends.
        jobs += [("records", number) for number in range(1, PROCESSES_OF_RECORDS)]
    began = time.time()
    with ThreadPoolExecutor(cores) as pool:
        found = [*pool.map(lambda job: _fuzz(*job, jobs, arguments.full), jobs)]
    results = {target: _added(target, jobs, found) for target in FULL}
    for target, result in results.items():
        problems = result["found"]
        print(f"{target}: {result['inputs']:,} inputs in {result['seconds']:,.0f} s", *problems)
    if arguments.full:
        page.write(results, began)
    return int(any(result["found"] for result in results.values()))


def _fuzz(target: str, number: int, jobs: list[tuple[str, int]], full: bool) -> dict[str, Any]:
    out = KEPT / "out" / f"{target}-{number}"
    shards = sum(name == target for name, _ in jobs)
    inputs = -(-FULL[target] // shards)
    bounds = ["--inputs", str(inputs)]
    if not full:
        bounds += ["--seconds", str(SHORT_S)]
    seed = str(int(time.time()) % 10**6 + number)
    log = _start(target, out, [*bounds, "--seed", seed])
    try:
        result: dict[str, Any] = json.loads((out / "result.json").read_text())
    except OSError:
        result = {"inputs": 0, "seconds": 0.0, "found": []}
    if log.returncode:  # it was too slow for libFuzzer, or took too much memory
        result["found"] = [*result["found"], f"exit code {log.returncode}, see {out}/log"]
    return result


def _start(target: str, out: Path, options: list[str]) -> subprocess.CompletedProcess[bytes]:
    out.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.fuzz.worker", target, *options]
    places = ["--out", str(out), "--corpus", str(KEPT / target)]
    with (out / "log").open("wb") as log:
        return subprocess.run([*command, *places], stdout=log, stderr=log, check=False)


def _added(
    target: str, jobs: list[tuple[str, int]], results: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the result of a target, whose inputs may have been divided among processes."""
    own = [result for (name, _), result in zip(jobs, results, strict=True) if name == target]
    return {
        "inputs": sum(result["inputs"] for result in own),
        "seconds": sum(result["seconds"] for result in own),
        "found": sorted({problem for result in own for problem in result["found"]}),
    }


def _minimise(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = _start(target, KEPT / "out" / f"{target}-merge", ["--minimise", folder])
        if log.returncode:
            raise SystemExit(f"see {KEPT}/out/{target}-merge/log")
        corpus = HERE / "corpus" / target
        shutil.rmtree(corpus, ignore_errors=True)
        shutil.copytree(folder, corpus)
        print(f"{target}: {len([*corpus.iterdir()])} inputs")


if __name__ == "__main__":
    sys.exit(main())
