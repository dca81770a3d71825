"""Compare the cost of plots in the terminal app: our widget and the two published ones.

Claim: eight plots of 8 lines × 256 points, redrawn five times a second, leave most of a core to
the training. The others are no dependencies, so each is measured where it is installed only:
`pip install textual-plotext==1.0.1 textual-plot==0.10.1`, in an environment of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.widget import Widget

from benchmarks.report import ROOT, Table, publish, settled_environment
from distrain.tui import marks
from distrain.tui.data.chart import Chart, ChartLine
from distrain.tui.widgets.plot_pane import PlotPane

SIZE = (120, 36)
LINES, POINTS, RATE = 8, 256, 5.0
LOOKS = 16  # frames of a live run, so that consecutive redraws differ
WARM = 3  # redraws before measuring


def looks() -> list[list[ChartLine]]:
    """Return noisy falling losses of eight ranks, a few windows longer in each frame."""
    chosen = random.Random(0)
    noise = [[chosen.gauss(0, 0.1) for _ in range(POINTS + LOOKS)] for _ in range(LINES)]
    found = []
    for look in range(LOOKS):
        x = array("d", (50 * at for at in range(look, look + POINTS)))
        lines = []
        for rank, jitter in enumerate(noise):
            curve = (2.3 * math.exp(-at / 5000) + 0.1 for at in x)
            y = array("d", (a + b * a for a, b in zip(curve, jitter[look:], strict=False)))
            lines.append(ChartLine(f"rank {rank}", marks.rank_mark(rank), x, y))
        found.append(lines)
    return found


Draw = Callable[[Any, Sequence[ChartLine]], None]


def _ours() -> tuple[type[Widget], Draw]:
    return PlotPane, lambda pane, lines: pane.show(Chart("training loss", lines))


def _plotext() -> tuple[type[Widget], Draw]:
    from textual_plotext import PlotextPlot

    def draw(widget: Any, lines: Sequence[ChartLine]) -> None:
        widget.plt.clear_data()
        for line in lines:
            colour = tuple(bytes.fromhex(line.mark.colour[1:]))
            widget.plt.plot(
                list(line.x), list(line.y), marker="braille", color=colour, label=line.name
            )
        widget.refresh()

    return PlotextPlot, draw


def _textual_plot() -> tuple[type[Widget], Draw]:
    from textual_hires_canvas import HiResMode
    from textual_plot import PlotWidget

    def draw(widget: Any, lines: Sequence[ChartLine]) -> None:
        widget.clear()
        for line in lines:
            widget.plot(line.x, line.y, line.mark.colour, HiResMode.BRAILLE, label=line.name)

    return PlotWidget, draw


WIDGETS = {
    "ours": ("tui", _ours),
    "textual-plot": ("textual_plot", _textual_plot),
    "textual-plotext": ("textual_plotext", _plotext),
}


class Plots(App[None]):
    CSS = "Grid { grid-size: 2; }"

    def __init__(self, kind: type[Widget], number: int) -> None:
        super().__init__()
        self.plots = [kind() for _ in range(number)]

    def compose(self) -> ComposeResult:
        yield Grid(*self.plots)


async def measure(widget: str, plots: int, seconds: float) -> dict[str, float]:
    """Redraw plots; return the CPU and wall seconds of this process and the number of redraws."""
    kind, draw = WIDGETS[widget][1]()
    app, seen = Plots(kind, plots), looks()
    async with app.run_test(size=SIZE) as pilot:
        redraws, began, cpu = -WARM, 0.0, 0.0
        while redraws < 1 or time.perf_counter() - began < seconds:
            if redraws == 0:
                began, cpu = time.perf_counter(), time.process_time()
            due = time.perf_counter() + 1 / RATE
            for plot in app.plots:
                draw(plot, seen[redraws % LOOKS])
            await pilot.pause()
            redraws += 1
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - began,
            "redraws": redraws,
        }


def _alone(widget: str, plots: int, seconds: float) -> dict[str, float]:
    """Measure in a separate process."""
    command = [sys.executable, "-m", "benchmarks.plots"]
    command += ["--seconds", str(seconds), "--measure", widget, str(plots)]
    environment = {**settled_environment(), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(ended.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plots", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="a short smoke test")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", nargs=2, metavar="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        widget, plots = arguments.measure
        print(json.dumps(asyncio.run(measure(widget, int(plots), arguments.seconds))))
        return
    if arguments.quick:
        arguments.plots, arguments.seconds = [2], 0.5
    rows = []
    for widget, (module, _) in WIDGETS.items():
        if find_spec(module) is None:
            print(f"{widget} is not installed, so it is not measured", file=sys.stderr)
            continue
        for plots in arguments.plots:
            found = _alone(widget, plots, arguments.seconds)
            rows.append(_row(widget, plots, found))
    title = (
        f"plots: {LINES} lines × {POINTS} points in each, {RATE:g} redraws per second requested, "
        f"in {SIZE[0]} × {SIZE[1]} cells"
    )
    headers = ("widget", "plots", "redraws per second", "% of a core", "ms CPU per plot")
    publish(Table(title, headers, rows), json_to=arguments.json)


def _row(widget: str, plots: int, found: dict[str, float]) -> tuple[object, ...]:
    return (
        widget,
        plots,
        f"{found['redraws'] / found['wall']:.1f}",
        f"{100 * found['cpu'] / found['wall']:.0f}",
        f"{1000 * found['cpu'] / found['redraws'] / plots:.1f}",
    )


if __name__ == "__main__":
    main()
