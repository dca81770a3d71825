"""The tables of docs/reliability.md, from the results: `python -m tests.faults.page`.

A cell has "passed/tried" and the slowest time until the right state; what was not tried is blank.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.faults.cases import FAULTS, LAUNCHERS, PHASES, TARGETS, Case
from tests.support import ROOT

RESULTS = ROOT / "tests" / "faults" / "results.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- results: made by make test-faults -->", "<!-- end of results -->"
NAMES = {
    "script": "the user's script",
    "loader": "loader process",
    "start": "before the first step",
    "training": "in training",
    "evaluation": "in an evaluation",
    "checkpoint": "in a checkpoint's write",
    "end": "at the end",
    "memory": "out of memory",
}
Result = dict[str, Any]


def read_results() -> list[Result]:
    """Return the latest result of each case, in the order of their ids."""
    if not RESULTS.exists():
        return []
    results = {}
    for line in RESULTS.read_text().splitlines():
        result = json.loads(line)
        results[tuple(result["case"])] = result
    return [results[key] for key in sorted(results)]


def text(results: list[Result]) -> str:
    """Return all tables."""
    crossed = [each for each in results if each["case"][0] != "special"]
    special = [each for each in results if each["case"][0] == "special"]
    parts = [summary(results)]
    for phase in PHASES:
        of_phase = [each for each in crossed if _case(each).phase == phase]
        heading = f"### {NAMES[phase][0].upper()}{NAMES[phase][1:]}"
        parts += [heading, cross(of_phase, TARGETS, FAULTS, lambda case: (case.target, case.fault))]
    how = [*LAUNCHERS, "slurm"]
    by_launcher = cross(crossed, how, TARGETS, lambda case: (case.launcher, case.target))
    parts += ["### By launcher, in all phases", by_launcher, "### Disks, people and the machine"]
    rows = [[_case(each).fault, _cell([each]), each["commit"]] for each in special]
    parts += [_table(["fault", "passed/tried", "commit"], rows), "### What failed"]
    failed = [
        f"- {_described(_case(each))}: {'; '.join(each['problems'])}"
        for each in results
        if each["problems"]
    ]
    parts.append("\n".join(failed) or "Nothing.")
    return "\n\n".join(parts)


def summary(results: list[Result]) -> str:
    passed = sum(not each["problems"] for each in results)
    dates = sorted({each["date"] for each in results})
    commits = list(dict.fromkeys(each["commit"] for each in sorted(results, key=_when)))
    resumed = sum(bool(each.get("resumed")) for each in results)
    seconds = sum(each["took_s"] for each in results)
    word = "commit" if len(commits) == 1 else "commits"
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "never"
    return (
        f"{passed} of {len(results)} cases passed; {resumed} runs were resumed. Tried on {when} at "
        f"{word} {', '.join(commits)}: {seconds / 3600:.1f} hours of cases, several at once."
    )


def cross(
    results: Iterable[Result],
    rows: Iterable[str],
    columns: Iterable[str],
    place: Callable[[Case], tuple[str, str]],
) -> str:
    """Return a table of two factors."""
    cells: dict[tuple[str, str], list[Result]] = {}
    for each in results:
        cells.setdefault(place(_case(each)), []).append(each)
    columns = list(columns)
    lines = [
        [NAMES.get(row, row), *(_cell(cells.get((row, column), [])) for column in columns)]
        for row in rows
    ]
    return _table(["", *(NAMES.get(column, column) for column in columns)], lines)


def filled(page: str) -> str:
    """Return the page with the results between its markers replaced."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{text(read_results())}\n{END}{rest.partition(END)[2]}"


def write() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


def _case(result: Result) -> Case:
    return Case(*result["case"])


def _when(result: Result) -> str:
    return str(result["date"])


def _cell(results: list[Result]) -> str:
    if not results:
        return ""
    passed = sum(not each["problems"] for each in results)
    times = [each["state_s"] for each in results if "state_s" in each]
    slowest = f" · {max(times):.1f} s" if times else ""
    return f"{passed}/{len(results)}{slowest}"


def _described(case: Case) -> str:
    if case.target == "special":
        return case.fault
    words = [NAMES.get(case.target, case.target), NAMES.get(case.fault, case.fault)]
    return f"{', '.join(words)}, {NAMES[case.phase]}, {case.launcher} (number {case.number})"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    write()
