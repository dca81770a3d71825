"""Given a report, when a person opens it without a network, then it can be read everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing, chromium

from runners.comparison.report import report

from .made import HOSTILE, comparison, contestant

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
    """Of contestants whose names are long, and hostile."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    found = comparison()
    found.contestants.append(contestant(f"{HOSTILE} is a very long name", 7000))
    path.write_text(report(found))
    return path


def test_all_charts_are_drawn_and_nothing_is_asked_for(browser: Browser, page: Path) -> None:
    browser.show(page)
    wanted = ["throughput", "ratios", "phases", "loss", "eval-top1", "gpu", "power", "energy"]
    assert browser.run(DRAWN) == wanted
    assert set(browser.asked) == {page.as_uri()}
    assert browser.errors == []
    assert browser.run("window.broken === undefined")
    shown = "[...document.querySelectorAll('#loss .legendtext')].at(-1).textContent"
    assert "<script>window" in browser.run(shown)


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_scrolls_in_one_direction_only(browser: Browser, page: Path, width: int) -> None:
    browser.show(page, width=width, touch=width < 600)
    assert browser.run("document.documentElement.scrollWidth") == width
    sticking_out = (
        "[...document.querySelectorAll('.plot .main-svg')]"
        ".filter(each => each.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert browser.run(sticking_out) == 0


def test_a_finger_scrolls_over_charts(browser: Browser, page: Path) -> None:
    browser.show(page, width=360, touch=True)
    assert browser.run("document.getElementById('loss').layout.dragmode") is False


GROUND = "getComputedStyle(document.body).backgroundColor"
PAPER = "document.getElementById('loss')._fullLayout.paper_bgcolor"


def test_it_is_light_or_dark_as_the_system_is_and_as_the_switch_says(
    browser: Browser, page: Path
) -> None:
    browser.show(page, dark=True)
    dark = browser.run(GROUND)
    assert browser.run(PAPER) == dark
    browser.show(page)
    light = browser.run(GROUND)
    assert (light, browser.run(PAPER)) == ("rgb(255, 255, 255)", light)
    assert dark != light
    switch = "document.getElementById('theme').click()"
    browser.run(f"{switch}; {switch}")  # auto, light, dark
    assert browser.run(GROUND) == browser.run(PAPER) == dark


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


def test_a_contestant_has_one_colour_everywhere(browser: Browser, page: Path) -> None:
    browser.show(page)
    mark = "getComputedStyle(document.querySelectorAll('.contestants .mark')[1]).color"
    throughput = "document.getElementById('throughput').data[3].marker.color"
    curve = "document.getElementById('loss').data[1].line.color"
    assert browser.run(throughput) == browser.run(curve) == browser.run(mark)
