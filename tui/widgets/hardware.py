"""The machine while it trains: GPUs with who uses them, or the host's cores and memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.text import Text
from textual.color import Color

from runners import words
from runners.events import GpuSample, HostSample
from runners.snapshot import RankNow
from tui import marks
from tui.data.feed import Frame, Gauge
from tui.spark import bar, spark
from tui.widgets.inks import legible
from tui.widgets.text_pane import TextPane

NA = "N/A"
WITH_CLOCK = 56  # cells from which there is room for the clock
MOST_HISTORY = 40


class Hardware(TextPane):
    """`show` gives it a frame."""

    HELP = (
        "Each GPU's utilisation (a kernel was running, not that the chip was busy), memory, power, "
        "temperature and clock (where there is room: {app.full}), with two minutes of history, the "
        "marks of the ranks on it and the other processes that use it. N/A: the device does not "
        "offer this. Without GPUs: the host."
    )

    _frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        self._frame = frame
        self.border_title = "GPUs" if frame.gpus else "machine"
        self._paint()

    def _paint(self) -> None:
        if (frame := self._frame) is not None:
            self.put(picture(frame, self.width, self.background_colors[1]))


def picture(frame: Frame, width: int, paper: Color) -> list[Text]:
    """All lines of the pane, to be seen on the paper."""
    lines = _gpus(frame, width, paper) if frame.gpus else []
    if frame.host:
        lines += _host(frame.host, width)
    if not frame.gpus:
        lines += [_rank(now, width, paper) for now in frame.snapshot.ranks]
    return lines or [Text("no sample yet", "dim")]


def _gpus(frame: Frame, width: int, paper: Color) -> list[Text]:
    """A head with the names, then for each GPU a line, and one for foreign processes on it."""
    names = Counter(gauge.sample.name for gauge in frame.gpus)
    title = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    lines = [Text(title, "dim")]
    for gauge in frame.gpus:
        line, foreign = _gpu(gauge, frame, width, paper), _foreign(gauge.sample, frame)
        if foreign and line.cell_len + 2 + foreign.cell_len <= width:
            line.append("  ").append_text(foreign)
            foreign = Text()
        lines += [line, Text("    ").append_text(foreign)] if foreign else [line]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _gpu(gauge: Gauge[GpuSample], frame: Frame, width: int, paper: Color) -> Text:
    sample = gauge.sample
    line = Text.assemble((f"{sample.gpu:<2}", "bold")).append_text(_ranks(sample, frame, paper))
    if gauge.lost:
        return line.append("  lost: it gives no figures any more", "bold red")
    figures = "  ".join(
        [
            f"{_memory(sample):>11}",
            f"{_of(sample.power, 'W'):>6}",
            f"{_of(sample.temperature, '°C'):>5}",
            *([f"{_of(sample.sm_clock, 'MHz'):>8}"] if width >= WITH_CLOCK else []),
        ]
    )
    line.append(f"{_percent(sample.utilisation):>6} ")
    room = min(max(width - line.cell_len - len(figures) - 2, 4), MOST_HISTORY)
    line.append(_history(gauge, "utilisation", 100.0, room), "cyan")
    return line.append(f" {figures}")


def _ranks(sample: GpuSample, frame: Frame, paper: Color) -> Text:
    """The marks of the ranks on a GPU; under `dp` one rank drives several."""
    here = [
        marks.of_rank(now.info.rank)
        for now in frame.snapshot.ranks
        if now.info.device_uuid == sample.uuid or now.info.pid in sample.processes
    ]
    pairs = [(mark.shape, legible(mark.colour, paper)) for mark in here]
    return Text.assemble(*pairs) if pairs else Text(" ")


def _foreign(sample: GpuSample, frame: Frame) -> Text:
    """Processes on a GPU that are no rank of this run."""
    pids = {now.info.pid for now in frame.snapshot.ranks}
    told = [
        f"{frame.names.get(pid, 'process')} {pid} {_size(memory)}"
        for pid, memory in sample.processes.items()
        if pid not in pids
    ]
    return Text("others: " + ", ".join(told), "yellow") if told else Text()


def _host(gauge: Gauge[HostSample], width: int) -> list[Text]:
    sample = gauge.sample
    used, total = sample.memory_used, sample.memory_total
    figures = f" {words.size(used)} of {words.size(total)}"
    room = max(width - 16 - len(figures), 6)
    cpu = Text.assemble(("CPU     ", "bold"), f"{sample.cpu:4.0f} % ", no_wrap=True)
    cpu.append(_history(gauge, "cpu", 100.0, room), "cyan").append(f" load {sample.load:.2f}")
    memory = Text.assemble(("memory  ", "bold"), f"{100 * used / total:4.0f} % ", no_wrap=True)
    return [cpu, memory.append(bar(used / total, room), "green").append(figures)]


def _rank(now: RankNow, width: int, paper: Color) -> Text:
    """Loader processes are told where there is room for them."""
    mark = marks.of_rank(now.info.rank)
    name = f"{mark.shape} rank {now.info.rank}".ljust(9)
    line = Text.assemble((name, legible(mark.colour, paper)), no_wrap=True)
    if now.cpu is None:
        return line.append("no sample", "dim")
    line.append(f"{now.cpu:4.0f} % of a core {words.size(now.rss):>8}")
    loaders = (now.processes or 1) - 1
    told = f"  {words.things(loaders, 'loader')}" if loaders else ""
    return line.append(told if line.cell_len + len(told) <= width else "", "dim")


def _history(gauge: Gauge[Any], name: str, top: float, width: int) -> str:
    values = gauge.history[name] if len(gauge.history) else ()
    return spark(values, width, top)


def _percent(value: float | None) -> str:
    return NA if value is None else f"{value:.0f} %"


def _size(value: float | None) -> str:
    return NA if value is None else words.size(value)


def _memory(sample: GpuSample) -> str:
    """ "38/141 GiB", or as much of that as the device offers."""
    if sample.memory_used is None:
        return NA
    total = "" if sample.memory_total is None else f"/{_gib(sample.memory_total)}"
    return f"{_gib(sample.memory_used)}{total} GiB"


def _gib(value: float) -> str:
    gib = value / 2**30
    return f"{gib:.0f}" if gib >= 9.95 else f"{gib:.1f}"


def _of(value: float | None, unit: str) -> str:
    return NA if value is None else f"{value:.0f} {unit}"
