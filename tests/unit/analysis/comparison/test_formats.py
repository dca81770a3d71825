"""Every format of a comparison has the same contents."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from distrain.runners.analysis.comparison.markdown import render_markdown
from distrain.runners.analysis.comparison.model import CandidateCurve, Comparison
from distrain.runners.analysis.comparison.report import render_report
from distrain.runners.cli.comparison_page import format_comparison, format_json

from .samples import HOSTILE, candidate, comparison

UNEQUAL = "unequal comparison: train.batch_size (128, 256, unset) differs"


def first_line(text: str) -> str:
    return text.splitlines()[0]


def test_the_first_line_of_every_format_names_unequal_settings() -> None:
    found = comparison()
    assert first_line(format_comparison(found)) == UNEQUAL
    assert first_line(render_markdown(found)).replace("\\", "") == f"**{UNEQUAL}**"
    assert next(iter(json.loads(format_json(found)).items())) == ("unequal", UNEQUAL)
    body = render_report(found).partition("<main>")[2]
    assert body.index(f"U{UNEQUAL[1:]}") < body.index("<h1>")


@pytest.mark.parametrize("render", [format_comparison, render_markdown, render_report])
def test_every_format_has_results_figures_settings_and_warnings(render: object) -> None:
    assert callable(render)
    text = render(comparison()).replace("\\", "")
    for wanted in (
        "ddp is 1.80× single (95 % CI 1.70–1.90)",
        "1.80× (1.70–1.90)",
        "8,955",
        "98.00 %",
        "train.batch_size",
        "mlp",
        "broken failed: rank 1: ValueError: no",
        "95 % intervals: every candidate is launched once in each round",
    ):
        assert wanted in text, wanted


@pytest.mark.parametrize("render", [format_comparison, render_markdown, render_report])
def test_every_format_names_the_unit_and_what_is_not_checked(render: object) -> None:
    assert callable(render)
    assert "checked:" not in render(comparison())
    found = comparison(unit="steps/s", unchecked=["data", "seed"], results=[])
    text = " ".join(render(found).split())
    assert "ot checked, because the scripts do not declare it: data and seed" in text
    assert "steps/s" in text
    assert "samples/s" not in text.partition('id="plotly"')[0]


def test_figures_that_no_candidate_has_get_no_column() -> None:
    assert "J/sample" in format_comparison(comparison())
    alone = [candidate("a", 5000, joules_per_sample=None, gpu=None, overlap=None)]
    page = format_comparison(comparison(candidates=alone, baseline="a", differences=[]))
    for column in ("J/sample", "comm overlap", "× a"):
        assert column not in page


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([2.2308020456550313e18] * 100, "▁" * 32),  # the mean of equal values is another one
        ([1.7e308, 1.7e308, -1.7e308, -1.7e308] * 16, "█▁" * 16),
    ],
)
def test_curves_of_large_values_have_bars(values: list[float | None], bars: str) -> None:
    curve = CandidateCurve(time=[], values=values)
    alone = [candidate("single", 5000, curves={"loss": curve})]
    found = comparison(candidates=alone, differences=[])
    assert bars in format_comparison(found)


def test_json_is_complete_and_can_be_read_back() -> None:
    found = comparison()
    assert msgspec.json.decode(format_json(found), type=Comparison) == found


def test_markdown_escapes_names() -> None:
    named = candidate("a | b\n# c `d` <i> @team", 5000)
    text = render_markdown(comparison(candidates=[named], differences=[]))
    (row,) = (line for line in text.splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a \| b \# c \`d\` \<i\> \@team |")


def test_a_report_escapes_names() -> None:
    found = comparison(
        title=HOSTILE,
        results=[HOSTILE],
        candidates=[candidate(HOSTILE, 5000)],
        warnings=[HOSTILE],
    )
    text = render_report(found)
    assert "<script>window" not in text
    assert text.count("&lt;script&gt;window.broken") >= 5


def test_a_report_has_no_chart_without_figures() -> None:
    bare = candidate("a", 5000, joules_per_sample=None, phases={}, curves={})
    text = render_report(comparison(candidates=[bare], baseline="a"))
    assert 'id="throughput"' in text
    for chart in ("ratios", "phases", "loss", "gpu", "power", "energy"):
        assert f'id="{chart}"' not in text


def test_each_curve_of_a_report_has_a_chart_of_its_own() -> None:
    names = ("eval a b", "eval a-b", "eval a%20b", "logged a b", "logged a-b")
    curves = {name: CandidateCurve(time=[1.0], values=[2.0]) for name in names}
    text = render_report(comparison(candidates=[candidate("a", 5000, curves=curves)]))
    ids = re.findall(r'class="plot" id="([^"]*)"', text)
    assert len(set(ids)) == len(ids) >= len(names)
    assert not any(" " in each for each in ids)
