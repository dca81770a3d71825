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
from runners.verification import Check, Report, usable, verify

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
    names = arguments.presets or usable(presets.names(), _left_out)
    ranks = _ranks(arguments.ranks)
    reports = []
    for report in verify(names, changes=changes(arguments), ranks=ranks):
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
    found = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdecimal() and int(part) for part in found):
        raise ConfigError(f"--ranks wants numbers from 1, e.g. --ranks 1,2,3, not {text!r}")
    return [int(part) for part in found]


def _line(report: Report) -> str:
    """What is said of a preset once it has been verified."""
    who = f"{report.preset} on {words.things(report.world_size, 'rank')}"
    if report.problem:
        return f"{who}: {report.problem}"
    first = report.first
    return f"{who}: {_sentence(first)}" if first else f"{who}: the same as one process"


def _sentence(check: Check) -> str:
    """What is wrong, and where first."""
    when = "before the first step" if check.step == 0 else f"at step {check.step}"
    if check.words:
        return f"{check.what} differ {when}: {check.words}"
    return (
        f"{check.what} differ {when}: {check.tensor} by {check.error:.2g} of its size, "
        f"{check.limit:.2g} is allowed"
    )


def _cells(report: Report) -> list[str]:
    how = f"{report.strategy} {report.launcher} {report.precision}"
    told = report.first if report.first and report.first.error is not None else report.worst
    where = f"{told.what} of {told.tensor}, step {told.step}" if told else words.MISSING
    error = words.MISSING if told is None else f"{told.error:.1e}"
    limit = words.MISSING if told is None else f"{told.limit:.1e}"
    verdict = "the same" if report.passed else "could not run" if report.problem else "differs"
    style = "completed" if report.passed else "failed"
    return [
        report.preset,
        how,
        str(report.world_size),
        where,
        error,
        limit,
        painted(verdict, style) if is_terminal(sys.stdout) else verdict,
    ]


def _explain(reports: list[Report]) -> None:
    tolerances = {report.tolerance for report in reports if report.tolerance}
    for text in sorted(tolerances):
        say(f"allowed is {text}", "dim")
    for report in reports:
        for text in report.declared:
            say(f"{report.preset}: {text}", "dim")


def _plain(report: Report) -> dict[str, Any]:
    first = report.first
    found: dict[str, Any] = msgspec.to_builtins(report)
    return {**found, "passed": report.passed, "first": first and _sentence(first)}
