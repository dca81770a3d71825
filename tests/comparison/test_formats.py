"""Given a comparison, when it is printed, then each format says the same."""

from __future__ import annotations

import json

import msgspec
import pytest

from runners.cli import comparing
from runners.comparison import Comparison
from runners.comparison.markdown import markdown
from runners.comparison.report import report

from .made import HOSTILE, comparison, contestant

UNEQUAL = "unequal comparison: train.batch_size (128, 256, unset) differs"


def first_line(text: str) -> str:
    return text.splitlines()[0]


def test_an_unequal_comparison_is_called_one_in_the_first_line_of_every_format() -> None:
    found = comparison()
    assert first_line(comparing.page(found)) == UNEQUAL
    assert first_line(markdown(found)).replace("\\", "") == f"**{UNEQUAL}**"
    assert next(iter(json.loads(comparing.json(found)).items())) == ("unequal", UNEQUAL)
    seen = report(found).partition("<main>")[2]
    assert seen.index(f"U{UNEQUAL[1:]}") < seen.index("<h1>")


@pytest.mark.parametrize("written", [comparing.page, markdown, report])
def test_every_format_has_verdicts_figures_settings_and_warnings(written: object) -> None:
    assert callable(written)
    text = written(comparison()).replace("\\", "")
    for wanted in (
        "ddp is 1.80× single (95 % CI 1.70–1.90)",
        "1.80× (1.70–1.90)",
        "8,955",
        "98.00 %",
        "train.batch_size",
        "mlp",
        "broken failed: rank 1: ValueError: no",
        "Intervals (95 %): every contestant is run once in each round",
    ):
        assert wanted in text, wanted


def test_what_nobody_has_measured_has_no_column() -> None:
    assert "J/sample" in comparing.page(comparison())
    alone = [contestant("a", 5000, joules_per_sample=None, gpu=None, overlap=None)]
    page = comparing.page(comparison(contestants=alone, baseline="a", differences=[]))
    for column in ("J/sample", "hidden comm", "× a"):
        assert column not in page


def test_json_is_whole_and_can_be_read_again() -> None:
    found = comparison()
    assert msgspec.json.decode(comparing.json(found), type=Comparison) == found


def test_markdown_is_not_broken_by_what_people_write() -> None:
    named = contestant("a | b\n# c `d` <i> @team", 5000)
    text = markdown(comparison(contestants=[named], differences=[]))
    (row,) = (line for line in text.splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a \| b \# c \`d\` \<i\> \@team |")


def test_a_report_shows_names_as_text() -> None:
    found = comparison(
        title=HOSTILE,
        verdicts=[HOSTILE],
        contestants=[contestant(HOSTILE, 5000)],
        warnings=[HOSTILE],
    )
    text = report(found)
    assert "<script>window" not in text
    assert text.count("&lt;script&gt;window.broken") >= 5


def test_a_report_has_no_chart_of_what_was_not_measured() -> None:
    bare = contestant("a", 5000, joules_per_sample=None, phases={}, curves={})
    text = report(comparison(contestants=[bare], baseline="a"))
    assert 'id="throughput"' in text
    for chart in ("ratios", "phases", "loss", "gpu", "power", "energy"):
        assert f'id="{chart}"' not in text
