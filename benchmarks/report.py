"""The output of every benchmark: tables, the machine they were measured on, and optionally JSON."""

from __future__ import annotations

import json
import os
import platform
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles
from timeit import repeat
from typing import Any, NamedTuple

import psutil

from distrain.runners.system.provenance import cpu_name

ROOT = Path(__file__).resolve().parents[1]
_LOAD_BEFORE = os.getloadavg()[0]


def machine() -> dict[str, Any]:
    """Return what the figures depend on.

    `load` is the mean number of running processes before the benchmark. `ns_per_loop` is the time
    of an empty iteration in Python in ns, about 10 on a current desktop.
    """
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "load": round(_LOAD_BEFORE, 2),
        "ns_per_loop": round(min(repeat("for _ in range(10**5): pass", number=1)) * 1e4, 1),
    }


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an aligned Markdown table: the first column left, the others right."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = [_line(row, widths) for row in cells]
    rule = "|".join("-" * (width + 1) + (":" if at else "-") for at, width in enumerate(widths))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return f"| {' | '.join(padded)} |"


class Table(NamedTuple):
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]


def publish(*tables: Table, json_to: Path | None) -> None:
    """Print the tables and the machine, and write both to a JSON file if one is given."""
    where = machine()
    for shown in tables:
        print(f"\n{shown.title}\n\n{table(shown.headers, shown.rows)}", flush=True)
    print("\n" + ", ".join(f"{name} {value}" for name, value in where.items()), flush=True)
    if json_to is not None:
        found = {
            shown.title: [dict(zip(shown.headers, row, strict=True)) for row in shown.rows]
            for shown in tables
        }
        json_to.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"machine": where, "tables": found}, indent=2, ensure_ascii=False)
        json_to.write_text(text + "\n")
        print(f"written to {json_to}", file=sys.stderr)


def median_interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """Return the bootstrap 95 % interval of the median (Efron 1979), with a fixed seed."""
    chosen = random.Random(0)
    found = sorted(median(chosen.choices(values, k=len(values))) for _ in range(draws))
    return found[round(draws * 0.025)], found[round(draws * 0.975) - 1]


class QuietRatio(NamedTuple):
    """The ratio of two series of durations, measured by turns, with its bootstrap 95 % interval.

    It compares their lower quartiles: other programs only make turns longer.
    """

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], draws: int = 2000) -> QuietRatio:
        chosen = random.Random(0)
        found = sorted(_ratio(chosen.choices(pairs, k=len(pairs))) for _ in range(draws))
        return cls(_ratio(pairs), found[round(draws * 0.025)], found[round(draws * 0.975) - 1])

    def cells(self) -> tuple[str, str]:
        return f"{self.ratio:.4f}", f"{self.low:.4f}–{self.high:.4f}"


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    ours, base = zip(*pairs, strict=True)
    return lower_quartile(ours) / lower_quartile(base)


def lower_quartile(values: Sequence[float]) -> float:
    return quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]


def settled_environment() -> dict[str, str]:
    """Return the environment for measured processes, in which bytecode is cached."""
    hidden = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    return {name: value for name, value in os.environ.items() if name not in hidden}
