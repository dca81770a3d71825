"""A report opened in a browser without a network: charts, widths, themes, axes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distrain.runners.analysis.comparison.report import render_report
from tests.support.browser import Browser, browsing, chromium

from .samples import HOSTILE, candidate, comparison

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium; `make browser` installs it"
)

DRAWN = (
    "[...document.querySelectorAll('.plot')]"
    ".filter(plot => plot.querySelector('.main-svg .trace, .main-svg .bars')).map(plot => plot.id)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report in which one name is long and contains a script."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    found = comparison()
    found.candidates.append(candidate(f"{HOSTILE} is a very long name", 7000))
    path.write_text(render_report(found))
    return path


def test_all_charts_are_drawn_without_a_request(browser: Browser, page: Path) -> None:
    browser.show(page)
    wanted = ["throughput", "ratios", "phases", "loss", "eval-top1", "gpu", "power", "energy"]
    assert browser.run(DRAWN) == wanted
    assert set(browser.requests) == {page.as_uri()}
    assert browser.errors == []
    assert browser.run("window.broken === undefined")
    shown = "[...document.querySelectorAll('#loss .legendtext')].at(-1).textContent"
    assert "<script>window" in browser.run(shown)


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.show(page, width=width, touch=width < 600)
    assert browser.run("document.documentElement.scrollWidth") == width
    sticking_out = (
        "[...document.querySelectorAll('.plot .main-svg')]"
        ".filter(each => each.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert browser.run(sticking_out) == 0


def test_a_wide_table_uses_the_window_and_scrolls_by_itself(browser: Browser, page: Path) -> None:
    sizes = "(({offsetWidth, scrollWidth}) => [offsetWidth, scrollWidth])"
    figures = f"{sizes}(document.querySelector('[aria-labelledby=figures] .scroll'))"
    browser.show(page, width=1280)
    shown, wanted = browser.run(figures)
    assert 960 < shown < wanted  # wider than the text, which has 60 rem
    browser.show(page, width=3200)
    shown, wanted = browser.run(figures)
    assert shown == wanted


def test_touch_scrolls_over_charts(browser: Browser, page: Path) -> None:
    browser.show(page, width=360, touch=True)
    assert browser.run("document.getElementById('loss').layout.dragmode") is False


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
PAPER = "document.getElementById('loss')._fullLayout.paper_bgcolor"


def test_the_theme_follows_the_system_or_the_button(browser: Browser, page: Path) -> None:
    browser.show(page, dark=True)
    dark = browser.run(BACKGROUND)
    assert browser.run(PAPER) == dark
    browser.show(page)
    light = browser.run(BACKGROUND)
    assert (light, browser.run(PAPER)) == ("rgb(255, 255, 255)", light)
    assert dark != light
    switch = "document.getElementById('theme').click()"
    browser.run(f"{switch}; {switch}")  # auto, light, dark
    assert browser.run(BACKGROUND) == browser.run(PAPER) == dark


def test_curves_are_by_time_or_by_step(browser: Browser, page: Path) -> None:
    browser.show(page)
    ends = "document.getElementById('loss').data.map(each => each.x.at(-1))"
    assert browser.run(ends) == pytest.approx(
        [200 / 5000 * 128, 200 / 9000 * 128, 200 / 7000 * 128]
    )
    browser.run("document.querySelector('[data-by=step]').click()")
    assert browser.run(ends) == [200, 200, 200]
    title = "document.getElementById('eval-top1').layout.xaxis.title.text"
    assert browser.run(title) == "optimizer step"


def test_a_candidate_has_one_colour_everywhere(browser: Browser, page: Path) -> None:
    browser.show(page)
    mark = "getComputedStyle(document.querySelectorAll('.candidates .mark')[1]).color"
    throughput = "document.getElementById('throughput').data[3].marker.color"
    curve = "document.getElementById('loss').data[1].line.color"
    assert browser.run(throughput) == browser.run(curve) == browser.run(mark)
