"""The plot pane in a headless app: drawing, repainting, and the mouse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import nan
from typing import Any

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from distrain.tui import keymap, marks
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.plotting.chart_layout import ChartLayout
from distrain.tui.plotting.drawn_line import PlotLook
from distrain.tui.widgets import painted_chart
from distrain.tui.widgets.plot_pane import PlotPane


def line(x: list[float], y: list[float], rank: int = 0) -> ChartLine:
    return ChartLine(f"rank {rank}", marks.rank_mark(rank), x, y)


RISING = Chart("training loss", [line([0, 50, 100], [1.0, 2.0, 3.0])], unit="nats")


class Watched(PlotPane):
    """Remembers which lines it painted."""

    painted: set[int] | None = None

    def refresh(self, *regions: Region, **options: Any) -> Watched:
        everything = not regions and options.get("repaint", True)
        if everything or self.painted is None:
            self.painted = None
        else:
            self.painted = self.painted | {y for region in regions for y in region.line_range}
        return super().refresh(*regions, **options)


class Plots(App[None]):
    def __init__(self, chart: Chart, theme: str = "textual-dark") -> None:
        super().__init__()
        self.chart, self.said = chart, []
        self.theme = theme

    said: list[PlotPane.Pointed | PlotPane.Zoomed]

    def compose(self) -> ComposeResult:
        yield Watched()

    def key(self, id: str) -> str:
        return " ".join(map(self.get_key_display, keymap.parse_keys(id, {})))

    def on_mount(self) -> None:
        self.pane.show(self.chart)

    @property
    def pane(self) -> Watched:
        return self.query_one(Watched)

    @property
    def shown(self) -> str:
        """Return the text inside the border."""
        return "\n".join(self.pane.render_line(y).text for y in range(self.pane.size.height))

    def on_plot_pane_pointed(self, said: PlotPane.Pointed) -> None:
        self.said.append(said)

    def on_plot_pane_zoomed(self, said: PlotPane.Zoomed) -> None:
        self.said.append(said)


Steps = Callable[[Plots, Pilot[None]], Awaitable[None]]


def with_app(chart: Chart, steps: Steps, size: tuple[int, int] = (60, 16), theme: str = "") -> None:
    async def run() -> None:
        app = Plots(chart, theme or "textual-dark")
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


def test_title_legend_axes_and_marks_are_shown() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        assert app.pane.border_title == "training loss (nats)"
        assert app.pane.border_subtitle == "values at step 100"
        legend, *_, last = app.shown.split("\n")
        assert legend.startswith("● rank 0 3")
        assert last.split() == ["0", "50", "100"]
        assert "3.0┤" in app.shown
        assert app.shown.count("●") == 4

    with_app(RISING, steps)


def test_a_pane_without_room_is_laid_out_once_for_all_of_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []

    class Counted(ChartLayout):
        def __init__(self, chart: Chart, width: int, height: int, *rest: Any) -> None:
            sizes.append((width, height))
            super().__init__(chart, width, height, *rest)

    monkeypatch.setattr(painted_chart, "ChartLayout", Counted)

    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        sizes.clear()
        assert len(app.shown.split("\n")) == 98
        assert sizes in ([], [(0, 98)])

    with_app(RISING, steps, size=(4, 100))


def test_an_empty_chart_shows_the_reason_in_the_middle() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        row = next(row for row in app.shown.split("\n") if row.strip())
        assert row.strip() == "no GPU in this run"
        assert abs(len(row) - len(row.rstrip()) - (len(row) - len(row.lstrip()))) <= 1

    with_app(Chart("GPU", [], empty_text="no GPU in this run"), steps)


def test_the_cursor_shows_values_and_repaints_only_what_changes() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.cursor = 0.0
        assert app.pane.border_subtitle == "values at the cursor"
        app.pane.painted = set()
        app.pane.cursor = 50.0
        assert "rank 0 2" in app.shown.split("\n")[0]
        assert "50" in app.shown.split("\n")[-1].split()
        assert app.shown.count("│") > 10
        assert app.pane.painted is not None
        app.pane.cursor = None
        assert "rank 0 3" in app.shown.split("\n")[0]

    with_app(RISING, steps)


def test_a_cursor_outside_of_the_chart_shows_no_values() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.cursor = 0.0
        assert "rank 0 1" in app.shown
        app.pane.show(RISING._replace(span=(25, 125)))
        assert "rank 0 3" in app.shown

    with_app(RISING, steps)


def test_the_same_chart_again_repaints_nothing_and_a_change_only_its_lines() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.painted = set()
        app.pane.show(RISING)
        assert app.pane.painted == set()
        app.pane.show(RISING._replace(lines=[line([0, 50, 100], [1.0, 2.0, 2.999])]))
        assert app.pane.painted == {0}

    with_app(RISING, steps)


def test_log_and_smooth_are_shown_and_bounded() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.look = PlotLook(log_y=True, smooth=9)
        assert app.pane.look.smooth == 3
        assert app.pane.border_subtitle == "EMA 0.99 · log y · values at step 100"

    with_app(RISING, steps)


def test_cursor_steps_from_one_drawn_column_to_the_next() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        pane, met = app.pane, []
        for direction in (1, -1, -1, -1, 1):
            pane.cursor = pane.step_cursor(direction)
            met.append(pane.cursor)
        assert met == [100, 50, 0, 0, 50]
        pane.show(Chart("none", []))
        assert pane.step_cursor(1) is None

    with_app(RISING, steps)


def test_zoom_keeps_its_centre_and_ends_at_the_whole() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        pane = app.pane
        assert pane.zoomed(0.5) == (25, 75)
        assert pane.panned(1) is None
        pane.show(RISING._replace(span=(25, 75)))
        assert pane.panned(1) == (50, 100)
        assert pane.panned(-1) == (0, 50)
        assert pane.zoomed(2) is None
        pane.cursor = 25.0
        assert pane.zoomed(0.5) == (25, 50)

    with_app(RISING, steps)


def test_the_mouse_points_and_leaves() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        await pilot.hover(Watched, offset=(30, 6))
        await pilot.pause()
        pointed = app.said[-1]
        assert isinstance(pointed, PlotPane.Pointed)
        assert pointed.x is not None
        assert 40 < pointed.x < 60
        app.pane.post_message(events.Leave(app.pane))
        await pilot.pause()
        assert isinstance(app.said[-1], PlotPane.Pointed)
        assert app.said[-1].x is None

    with_app(RISING, steps)


def test_the_wheel_zooms_about_the_pointer() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        wheel = events.MouseScrollUp(app.pane, 30, 6, 0, 0, 0, False, False, False, 30, 6)
        app.pane.post_message(wheel)
        await pilot.pause()
        zoomed = app.said[-1]
        assert isinstance(zoomed, PlotPane.Zoomed)
        assert zoomed.span is not None
        assert zoomed.span[1] - zoomed.span[0] == pytest.approx(80)

    with_app(RISING, steps)


def test_dragging_over_a_part_requests_it() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        await pilot.mouse_down(Watched, offset=(20, 6))
        await pilot.hover(Watched, offset=(40, 6))
        await pilot.mouse_up(Watched, offset=(40, 6))
        await pilot.pause()
        zoomed = [said for said in app.said if isinstance(said, PlotPane.Zoomed)]
        assert len(zoomed) == 1
        assert zoomed[0].span is not None
        low, high = zoomed[0].span
        assert 20 < low < high < 80

    with_app(RISING, steps)


@pytest.mark.parametrize("size", [(60, 1), (60, 3), (1, 1), (5, 4), (12, 6), (200, 60)])
def test_every_size_is_drawn(size: tuple[int, int]) -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.styles.border = ("none", "black")
        app.pane.cursor = 50.0
        await pilot.pause()
        assert {len(row) for row in app.shown.split("\n")} <= {max(1, app.pane.size.width), 0}

    with_app(RISING, steps, size)


@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "ansi-light"])
def test_every_theme_is_drawn_and_a_new_one_changes_the_colours(theme: str) -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        app.pane.look = PlotLook(smooth=1)
        before = [segment.style for segment in app.pane.render_line(0)]
        app.theme = "dracula"
        await pilot.pause()
        assert [segment.style for segment in app.pane.render_line(0)] != before

    with_app(RISING, steps, theme=theme)


def test_without_colour_lines_differ_by_mark_and_lines_behind_are_dimmer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        assert "●" in app.shown
        assert "■" in app.shown

    two = [line([0, 1], [1.0, nan]), line([0, 1], [1.0, 2.0], 1)]
    with_app(Chart("loss", two), steps)


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize("large", [1.0, 27_000.0, 1e15])
def test_the_y_axis_can_be_zoomed_and_moved_without_end(large: float, log_y: bool) -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        pane = app.pane
        pane.look = PlotLook(log_y=log_y)
        for _ in range(100):
            pane.look = pane.look._replace(y_span=pane.zoomed_y(0.5))
        assert pane.look.y_span is not None
        for direction in (1, -1):
            for _ in range(100):
                pane.look = pane.look._replace(y_span=pane.panned_y(direction))
        assert pane.look.y_span[0] > 0

    with_app(Chart("rate", [line([0, 1, 2], [large, 1.1 * large, 1.2 * large])]), steps)


def test_times_that_no_calendar_has_are_drawn_as_numbers() -> None:
    async def steps(app: Plots, pilot: Pilot[None]) -> None:
        assert "T" in app.shown.split("\n")[-1]

    with_app(Chart("loss", [line([-1e17, 1.79e9, 1e18], [1, 2, 3])], x_axis="time"), steps)
