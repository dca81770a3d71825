"""Runs the whole matrix, several cases at once: `python -m tests.faults [--jobs N] [FILTER …]`.

Results are appended to a file, one line of JSON for each case. Cases that are in it are not tried
again, so an interrupted matrix continues; without the file it begins again. At the end the page is
written.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from distrain.runners.horovod import problem as horovod_problem
from tests.cluster.slurm.cluster import Cluster
from tests.faults import page
from tests.faults.cases import SLURM, WRITING, Case, covering_set, repeats
from tests.faults.special import SPECIAL
from tests.support import ROOT

LIMIT_S = 400.0  # of one case


def matrix() -> list[Case]:
    """Return all cases that can be tried here, in an order that mixes long and short ones."""
    cases = [*covering_set(), *repeats(), *WRITING]
    if horovod_problem():
        cases = [case for case in cases if case.launcher != "horovod"]
    if Cluster.found():
        cases += SLURM
    cases = sorted(cases, key=lambda case: case.random.random())
    return [*[Case("special", name, "", "") for name in SPECIAL], *cases]


def try_case(case: Case, folder: Path) -> dict[str, Any]:
    """Carry out a case in a process of its own and return its result."""
    folder.mkdir()
    began = time.time()
    module = "tests.faults.special" if case.target == "special" else "tests.faults.case"
    cluster = Cluster.found() if case.launcher == "slurm" else None
    environment = cluster.environment if cluster else os.environ
    words = [case.fault] if case.target == "special" else list(map(str, case))
    try:
        done = subprocess.run(
            [*namespace(), sys.executable, "-m", module, str(folder), *words],
            cwd=ROOT,
            env={**environment, "FAULT_NAMESPACE": "1" if namespace() else ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        result = {"case": list(case), "problems": [f"not over after {LIMIT_S:.0f} s"]}
    except (IndexError, json.JSONDecodeError):
        result = {"case": list(case), "problems": [done.stderr.strip().splitlines()[-1]]}
    return {**result, "took_s": round(time.time() - began, 1)}


def namespace() -> list[str]:
    """Return the command that gives a process its own mounts; none where that is impossible."""
    for words in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                return words
        except FileNotFoundError:
            break
    return []


def try_all(cases: list[Case], jobs: int, stamp: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the result of each case as it ends."""
    parent = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
    with ThreadPoolExecutor(jobs) as pool:
        futures = [
            pool.submit(try_case, case, parent / str(number)) for number, case in enumerate(cases)
        ]
        for future in as_completed(futures):
            yield {**future.result(), **stamp}
    if not any(parent.iterdir()):
        shutil.rmtree(parent)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--again", action="store_true", help="try what failed again")
    parser.add_argument("filter", nargs="*", help="parts of the ids of the cases to try")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    stamp = {"date": time.strftime("%Y-%m-%d"), "commit": commit}
    known = page.read_results()
    done = {tuple(each["case"]) for each in known if not (options.again and each["problems"])}
    cases = [case for case in matrix() if tuple(case) not in done]
    if options.filter:
        cases = [case for case in cases if any(part in case.id for part in options.filter)]
    began = time.time()
    failed = 0
    with page.RESULTS.open("a") as file:
        for number, result in enumerate(try_all(cases, options.jobs, stamp), 1):
            print(json.dumps(result), file=file, flush=True)
            failed += bool(result["problems"])
            text = "; ".join(result["problems"]) or "ok"
            took = f"{number}/{len(cases)} {result['took_s']:5.1f} s"
            print(f"{took}  {Case(*result['case']).id}: {text}", flush=True)
    print(f"{failed} of {len(cases)} cases failed, in {(time.time() - began) / 60:.0f} minutes")
    page.write()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
