"""The report: one HTML file that needs no network, because it contains plotly.js and all data."""

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

from distrain.runners.analysis.comparison import chart_style, charts, sentences, table
from distrain.runners.analysis.comparison.model import Comparison

PACKAGE = "distrain.runners.analysis.comparison"
# Rows of the provenance; everything else in it is the version of a package.
PLACES = ("made", "host", "processor", "GPUs", "system", "commit", "uncommitted")
TEMPLATE = "report.html.jinja"


def render_report(comparison: Comparison) -> str:
    """Return the HTML file. Names, notes and values are escaped."""
    heads, rows = table.make_table(comparison)
    report_charts = charts.make_charts(comparison)
    indices = range(len(comparison.candidates))
    page: str = _template().render(
        comparison=comparison,
        unequal=sentences.describe_unequal(comparison),
        unchecked=sentences.describe_unchecked(comparison.unchecked),
        marks=[chart_style.mark_of(index) for index in indices],
        colours=[chart_style.colour_of(index) for index in indices],
        describe_candidate=table.describe_candidate,
        heads=heads,
        rows=rows,
        charts=report_charts,
        settings=table.setting_rows(comparison),
        provenance=_provenance_rows(comparison.provenance),
        records=_record_entries(comparison),
        interval_note=table.INTERVAL_NOTES[comparison.kind],
        chart_data=msgspec.to_builtins(report_charts),
        style=_read_asset("report.css"),
        script=_read_asset("report.js"),
        plotly=_packed_plotly(),
    )
    return page


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader(PACKAGE, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE)


def _read_asset(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text("utf-8")


@cache
def _packed_plotly() -> str:
    """Return plotly.js, compressed from 5 MB to 2 MB; browsers can decompress gzip themselves."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _record_entries(comparison: Comparison) -> list[dict[str, Any]]:
    """Return what is known of each record; of a bench, the ids of each candidate's records."""
    entries: list[dict[str, Any]] = comparison.provenance.get("records", [])
    return entries or [
        {"id": each.name, "records": ", ".join(Path(folder).name for folder in each.folders)}
        for each in comparison.candidates
    ]


def _provenance_rows(provenance: dict[str, Any]) -> dict[str, str]:
    """Return what a reader needs of a provenance, the versions as one row."""
    single = {key: value for key, value in provenance.items() if isinstance(value, str)}
    single.pop("implementation", None)  # of Python: torch runs on one only
    rows = {key: single.pop(key) for key in PLACES if key in single}
    versions = ", ".join(f"{name} {version}" for name, version in single.items())
    return rows | ({"versions": versions} if versions else {})
