"""`verify`: whether ways of training compute what one plain process computes."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import msgspec

from runners import presets, words
from runners.cli import complaint
from runners.cli.starting import changes
from runners.cli.text import Column, is_terminal, painted, print_json, say, table
from runners.errors import ConfigError
from runners.verification.cases import usable, verify
from runners.verification.report import Report, origin_of_limits

COLUMNS = (
    Column("preset"),
    Column("how", spare=3),
    Column("ranks", right=True),
    Column("nearest to its limit", spare=2),
    Column("error", right=True),
    Column("allowed", right=True),
    Column("verdict"),
)


def run(arguments: Namespace) -> int:
    """Verify presets, by default all that can run here; 1 if one fails."""
    ranks, changed = _ranks(arguments.ranks), changes(arguments)
    names = arguments.presets or usable(presets.names(), _left_out, changes=changed, ranks=ranks)
    reports = []
    for report in verify(names, changes=changed, ranks=ranks):
        reports.append(report)
        say(_line(report), "" if report.passed else "failed")
    if arguments.json:
        print_json([_plain(report) for report in reports])
    else:
        print(table(COLUMNS, map(_cells, reports)))
        _explain(reports)
    return 0 if all(report.passed for report in reports) else 1


def _left_out(name: str, error: ConfigError) -> None:
    say(f"{name} is left out: {complaint(error).removeprefix('distrain: ')}", "dim")


def _ranks(text: str | None) -> list[int]:
    """Numbers of ranks, as "1,2,3"; raises ConfigError."""
    found = [part.strip() for part in text.split(",")] if text is not None else []
    if not all(part.isdecimal() and int(part) for part in found):
        raise ConfigError(f"--ranks wants numbers from 1, e.g. --ranks 1,2,3, not {text!r}")
    return [int(part) for part in found]


def _line(report: Report) -> str:
    """What is said of a preset once it has been verified."""
    who = f"{report.preset} on {words.things(report.world_size, 'rank')}"
    return f"{who}: {report.sentence or 'the same as one process'}"


def _cells(report: Report) -> list[str]:
    style = "completed" if report.passed else "failed"
    outcome = painted(report.outcome, style) if is_terminal(sys.stdout) else report.outcome
    head = [report.preset, report.combination, str(report.world_size)]
    return [*head, *report.figures(), outcome]


def _explain(reports: list[Report]) -> None:
    tolerances = {report.tolerance for report in reports if report.tolerance}
    for text in sorted(tolerances):
        say(origin_of_limits(text), "dim")
    for report in reports:
        for text in report.declared:
            say(f"{report.preset}: {text}", "dim")


def _plain(report: Report) -> dict[str, Any]:
    first = report.first
    found: dict[str, Any] = msgspec.to_builtins(report)
    return {**found, "passed": report.passed, "first": first and first.sentence}
