"""The report: one HTML file that opens offline, with everything in it that it shows."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from runners.comparison import Comparison, charts, drawing, table, verdicts

PAGE = "report.html.jinja"


def report(comparison: Comparison) -> str:
    """The whole file. Whatever a name, a note or a value holds is shown as text."""
    heads, rows = table.table(comparison)
    drawn = charts.charts(comparison)
    page: str = _page().render(
        comparison=comparison,
        unequal=verdicts.unequal(comparison),
        marks=[drawing.mark(index) for index in range(len(comparison.contestants))],
        colours=[drawing.colour(index) for index in range(len(comparison.contestants))],
        how=table.how,
        heads=heads,
        rows=rows,
        charts=drawn,
        switch=any(chart.by for chart in drawn),
        settings=table.settings(comparison),
        origin=_flat({k: v for k, v in comparison.provenance.items() if k != "records"}),
        records=_records(comparison),
        intervals=table.INTERVALS[comparison.kind],
        figures=msgspec.to_builtins(drawn),
        style=_asset("report.css"),
        script=_asset("report.js"),
        plotly=_plotly(),
    )
    return page


def _page() -> Any:
    environment = Environment(
        loader=PackageLoader("runners.comparison", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(PAGE)


def _asset(name: str) -> str:
    return files("runners.comparison").joinpath(name).read_text("utf-8")


@cache
def _plotly() -> str:
    """plotly.js, packed: 2 MB instead of 5, which every browser can unpack by itself."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _records(comparison: Comparison) -> list[dict[str, Any]]:
    """What is known of each record; of a bench, the ids of each contestant's."""
    known: list[dict[str, Any]] = comparison.provenance.get("records", [])
    return known or [
        {"id": each.name, "records": ", ".join(Path(folder).name for folder in each.folders)}
        for each in comparison.contestants
    ]


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, "" if key == "versions" else f"{prefix}{key} ")
        elif value not in (None, "", []):
            flat[f"{prefix}{key}"] = (
                ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            )
    return flat
