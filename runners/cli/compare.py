"""`compare`: compare runs, or show a bench, for a terminal, a pull request or a browser."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from distrain.runners import formatting, lookup
from distrain.runners.analysis.comparison import recorded_runs
from distrain.runners.analysis.comparison.curves import add_curves
from distrain.runners.analysis.comparison.markdown import render_markdown
from distrain.runners.analysis.comparison.model import Comparison
from distrain.runners.bench.handle import Bench
from distrain.runners.cli.comparison_page import format_comparison, format_json
from distrain.runners.cli.run_selection import select_rows
from distrain.runners.cli.runs import read_rows
from distrain.runners.cli.terminal import print_message
from distrain.runners.errors import ConfigError, DistrainError, RunNotFoundError
from distrain.runners.groups import find_group
from distrain.runners.records.reader import Record
from distrain.runners.records.untrusted import decode
from distrain.runners.session import runs_folder
from distrain.runners.system.files import open_replacement

MAX_COMPARED = 64  # of the runs that match a filter
OLD_KEYS = {"contestants": "candidates", "verdicts": "results"}  # in files of older versions


def execute(arguments: Namespace) -> int:
    """Print the comparison, or write it to --out; a report goes to a file, unless --out is "-"."""
    text_format = "json" if arguments.json else arguments.format
    out = arguments.out
    if text_format == "html" and out is None:
        out = f"compare-{time.strftime('%Y%m%d-%H%M%S')}.html"
    text = _format(_comparison(arguments), text_format)
    if out in (None, "-"):
        sys.stdout.write(text)
        return 0
    try:
        with open_replacement(Path(out)) as file:
            file.write(text)
    except OSError as error:
        raise DistrainError(f"cannot write to {out}: {error.strerror}") from None
    print_message(f"wrote {formatting.printable(out)}")
    return 0


def _comparison(arguments: Namespace) -> Comparison:
    if len(arguments.runs) == 1 and not (arguments.filter or arguments.group):
        wanted = arguments.runs[0]
        measured = _read_comparison(wanted) or _bench_comparison(wanted, arguments.runs_dir)
        if measured:
            if arguments.baseline not in (None, measured.baseline):
                raise ConfigError(
                    f"the baseline of this comparison is {measured.baseline} and cannot be changed"
                )
            return measured
    runs = [run for each in arguments.runs for run in lookup.find_runs(each, arguments.runs_dir)]
    if arguments.group:
        runs += find_group(arguments.group, arguments.runs_dir).runs
    records = [run.record for run in runs]
    if arguments.filter:
        records += _matching_records(arguments.filter, runs_folder(arguments.runs_dir))
    if not records:
        raise ConfigError("name the runs to compare, or choose them with --filter or --group")
    return recorded_runs.compare(records, arguments.baseline)


def _matching_records(expression: str, runs_dir: Path) -> list[Record]:
    """Return the records that match a filter expression, the oldest first."""
    rows = select_rows(read_rows(runs_dir, []), expression)
    records = [Record(row["dir"]) for row in reversed(rows) if row["kind"] == "run"]
    if not records:
        raise RunNotFoundError(f"no run in {runs_dir} matches {expression}")
    if len(records) > MAX_COMPARED:
        raise ConfigError(
            f"{len(records):,} runs match; at most {MAX_COMPARED} are compared: narrow the filter"
        )
    return records


def _bench_comparison(wanted: str, runs_dir: str | None) -> Comparison | None:
    """Return what the bench of this name shows, or None if it is a run or a group."""
    found = lookup.find_any(wanted, runs_dir)
    return add_curves(found.comparison()) if isinstance(found, Bench) else None


def _read_comparison(name: str) -> Comparison | None:
    """Return the comparison in a file of `--format json`, or None if it is no JSON file."""
    path = Path(name)
    if path.suffix != ".json":
        return None
    try:
        comparison = _decode_comparison(path.read_bytes())
    except OSError as error:
        raise DistrainError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise DistrainError(f"{path} is not a comparison: {error}") from None
    if comparison.baseline not in {each.name for each in comparison.candidates}:
        raise DistrainError(f"{path} is not a comparison: its baseline is not a candidate")
    return comparison


def _decode_comparison(data: bytes) -> Comparison:
    """Return the comparison of a JSON text, also one of an older version. Raises ValueError."""
    document = decode(data, dict[str, Any])
    renamed = {OLD_KEYS.get(key, key): value for key, value in document.items()}
    return decode(msgspec.json.encode(renamed), Comparison)


def _format(comparison: Comparison, text_format: str) -> str:
    if text_format == "html":
        from distrain.runners.analysis.comparison.report import render_report  # loads plotly

        return render_report(comparison)
    if text_format == "md":
        return render_markdown(comparison)
    if text_format == "json":
        return format_json(comparison)
    return format_comparison(comparison) + "\n"
