"""What every benchmark prints: a table, the machine it was measured on, and JSON on request."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from runners.provenance import cpu_name


def machine() -> dict[str, Any]:
    """What the figures depend on; `load` is the mean number of running processes before."""
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "load": round(os.getloadavg()[0], 2),
    }


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown, aligned for reading as it is: the first column to the left, figures right."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = [_line(row, widths) for row in cells]
    rule = "|".join("-" * (width + 1) + (":" if at else "-") for at, width in enumerate(widths))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return f"| {' | '.join(padded)} |"


def publish(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[object]], *, json_to: Path | None
) -> None:
    """Print the table with its machine to stdout, and write both to a file if one is given."""
    where = machine()
    line = ", ".join(f"{name} {value}" for name, value in where.items())
    print(f"\n{title}\n\n{table(headers, rows)}\n\n{line}", flush=True)
    if json_to is not None:
        found = [dict(zip(headers, row, strict=True)) for row in rows]
        json_to.parent.mkdir(parents=True, exist_ok=True)
        json_to.write_text(json.dumps({"title": title, "machine": where, "rows": found}, indent=2))
        print(f"written to {json_to}", file=sys.stderr)
