"""Writes tests/fuzz/results.json and the table of docs/fuzzing.md: `python -m tests.fuzz.page`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "fuzzing.md"
FULL = {"decoder": 9_000_000, "presets": 100_000, "records": 20_000}  # inputs of a full run
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"


def write(results: dict[str, Any], began: float) -> None:
    """Store the results of a full run that began at this Unix time, and write the table."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "runners", "models")
    about = {
        "commit": f"{commit} with changes" if changed else commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "cores": len(os.sched_getaffinity(0)),
    }
    stored = {target: {**result, **about} for target, result in results.items()}
    RESULTS.write_text(json.dumps(stored, indent=2) + "\n")
    write_page()


def write_page() -> None:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}{table()}\n{END}{rest.split(END)[1]}")


def table() -> str:
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    lines = [
        "| target | inputs | of | process time | date | commit | found now | found so far |",
        "| --- | ---: | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    for target, wanted in FULL.items():
        kept = len([*(HERE / "found" / target).glob("*")])
        result = stored.get(target)
        cells = [f"`{target}`", "", f"{wanted:,}", "", "", "", "", str(kept)]
        if result:
            cells[1] = f"{result['inputs']:,}"
            cells[3] = f"{result['seconds'] / 60:,.1f} min"
            cells[4:7] = [result["date"], result["commit"], str(len(result["found"]))]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [
        f"`{name}`: {stored[name]['note']}" for name in FULL if stored.get(name, {}).get("note")
    ]
    return "\n".join([*lines, *(f"\n{note}" for note in notes)])


def _git(*words: str) -> str:
    command = ["git", "-C", str(HERE), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    write_page()
