"""The machine while it trains: GPUs with who uses them, or the host's cores and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from rich.text import Text
from textual.color import Color

from runners import words
from runners.events import GpuSample, HostSample
from runners.snapshot import RankNow
from tui import marks
from tui.data.feed import Frame
from tui.data.nodes import Gauge, Node, by_trouble
from tui.spark import bar, spark
from tui.widgets.columns import Column, aligned, fitting
from tui.widgets.inks import legible
from tui.widgets.node_pane import NodePane, Part
from tui.widgets.rank_table import mean_of

NA = "N/A"
WITH_CLOCK = 56  # cells from which there is room for the clock
MOST_HISTORY = 40


class Hardware(NodePane):
    """`show` gives it a frame."""

    HELP = (
        "Each GPU's utilisation (a kernel was running, not that the chip was busy), memory, power, "
        "temperature and clock (where there is room: {app.full}), with two minutes of history, the "
        "marks of the ranks on it and the other processes that use it. N/A: the device does not "
        "offer this. Without GPUs: the host. Of several nodes each has a line: its CPU and memory, "
        "its GPUs' mean utilisation, their memory and power together and the hottest of them. "
        "{run.fold} shows all of one, {run.folds} of all."
    )

    _frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        self._frame = frame
        self.border_title = "GPUs" if any(node.gpus for node in frame.nodes) else "machine"
        self._paint()

    def _paint(self) -> None:
        if (frame := self._frame) is None:
            return
        paper = self.background_colors[1]
        if len(frame.nodes) > 1:
            self._paint_nodes(frame, paper)
        else:
            self.put_alone(picture(frame, self.width, paper))

    def _paint_nodes(self, frame: Frame, paper: Color) -> None:
        nodes, late = frame.nodes, frame.diagnosis.straggler
        self.border_title = f"{len(nodes):,} nodes"
        self.border_subtitle = _hottest(nodes)
        columns = _columns(nodes, self.width)
        parts = [
            Part(node, partial(_summary, node, columns), self._under(node, frame, paper))
            for node in by_trouble(nodes, late.rank if late else None)
        ]
        head = Text(" ").join(aligned(Text(column.name, "dim"), column) for column in columns)
        self.put_parts([head], parts)

    def _under(self, node: Node, frame: Frame, paper: Color) -> list[Callable[[], Text]]:
        """Lines that are made once they are in sight; nobody but the GPUs has many."""
        room = self.width - 2
        if not node.gpus:
            host = _host(node.host, room) if node.host else []
            lines = [*host, *(_rank(rank, room, paper) for rank in node.ranks)]
            return [partial(_indented, line.copy) for line in lines]
        makers: list[Callable[[], Text]] = []
        for gauge in node.gpus:
            makers.append(partial(_indented, partial(_gpu, gauge, node, room, paper)))
            if foreign := _foreign(gauge.sample, node, frame):
                makers.append(partial(_indented, Text("  ").append_text(foreign).copy))
        return makers


def _indented(made: Callable[[], Text]) -> Text:
    return Text("  ") + made()


def picture(frame: Frame, width: int, paper: Color) -> list[Text]:
    """All lines of one host, to be seen on the paper."""
    lines = []
    for node in frame.nodes:
        lines += _gpus(node, frame, width, paper) if node.gpus else []
        if node.host:
            lines += _host(node.host, width)
        if not node.gpus:
            lines += [_rank(now, width, paper) for now in node.ranks]
    return lines or [Text("no sample yet", "dim")]


# --- one line of a node --------------------------------------------------------------------------

COLUMNS = (
    Column("CPU", 5),
    Column("memory", 8, 2),
    Column("GPU", 5, 1),
    Column("GPU mem", 8, 3),
    Column("hottest", 7, 1),
    Column("power", 8, 4),
)
OF_GPUS = ("GPU", "GPU mem", "hottest", "power")


def _columns(nodes: Sequence[Node], width: int) -> list[Column]:
    name = Column("node", max(min(max(len(node.name) for node in nodes) + 2, 20), 6), right=False)
    gpus = any(node.gpus for node in nodes)
    return fitting([name, *(c for c in COLUMNS if gpus or c.name not in OF_GPUS)], width)


def _summary(node: Node, columns: Sequence[Column]) -> Text:
    first, *others = columns
    name = Text(node.name, "bold red" if node.amiss else "bold")
    line = Text(no_wrap=True).append_text(aligned(name, first._replace(width=first.width - 2)))
    cells = _cells(node)
    for column in others:
        line.append(" ").append_text(aligned(Text(cells[column.name]), column))
    return line.append(f" {node.amiss}", "red") if node.amiss else line


def _cells(node: Node) -> dict[str, str]:
    host = node.host.sample if node.host else None
    samples = [gauge.sample for gauge in node.gpus]
    heat = _known(sample.temperature for sample in samples)
    memory = _known(sample.memory_used for sample in samples)
    power = _known(sample.power for sample in samples)
    return {
        "CPU": words.MISSING if host is None else _percent(host.cpu),
        "memory": words.size(host.memory_used if host else None),
        "GPU": _percent(mean_of(sample.utilisation for sample in samples)),
        "GPU mem": _size(sum(memory) if memory else None),
        "hottest": _of(max(heat, default=None), "°C"),
        "power": _of(sum(power) if power else None, "W"),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _hottest(nodes: Sequence[Node]) -> str:
    """ "hottest: GPU 3 of node-07, 78 °C"."""
    heat = [
        (gauge.sample.temperature, -node.number, -gauge.sample.index, node.name)
        for node in nodes
        for gauge in node.gpus
        if gauge.sample.temperature is not None
    ]
    if not heat:
        return ""
    degrees, _, index, name = max(heat)
    return f"hottest: GPU {-index} of {name}, {_of(degrees, '°C')}"


# --- one host ------------------------------------------------------------------------------------


def _gpus(node: Node, frame: Frame, width: int, paper: Color) -> list[Text]:
    """A head with the names, then for each GPU a line, and one for foreign processes on it."""
    names = Counter(gauge.sample.name for gauge in node.gpus)
    title = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    lines = [Text(title, "dim")]
    for gauge in node.gpus:
        line, foreign = _gpu(gauge, node, width, paper), _foreign(gauge.sample, node, frame)
        if foreign and line.cell_len + 2 + foreign.cell_len <= width:
            line.append("  ").append_text(foreign)
            foreign = Text()
        lines += [line, Text("    ").append_text(foreign)] if foreign else [line]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _gpu(gauge: Gauge[GpuSample], node: Node, width: int, paper: Color) -> Text:
    sample = gauge.sample
    line = Text.assemble((f"{sample.index:<2}", "bold")).append_text(_ranks(sample, node, paper))
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


def _ranks(sample: GpuSample, node: Node, paper: Color) -> Text:
    """The marks of the ranks on a GPU; under `dp` one rank drives several."""
    here = [
        marks.of_rank(now.info.rank)
        for now in node.ranks
        if now.info.device_uuid == sample.uuid or now.info.pid in sample.processes
    ]
    pairs = [(mark.shape, legible(mark.colour, paper)) for mark in here]
    return Text.assemble(*pairs) if pairs else Text(" ")


def _foreign(sample: GpuSample, node: Node, frame: Frame) -> Text:
    """Processes on a GPU that are no rank of this run."""
    pids = {now.info.pid for now in node.ranks}
    told = [
        f"{frame.names.get((sample.host, pid), 'process')} {pid} {_size(memory)}"
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
