"""The hardware of a run: GPUs with the processes that use them, or cores and memory of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from rich.text import Text
from textual.color import Color
from textual.content import Content

from distrain.runners import formatting
from distrain.runners.protocol.events import GpuSample, HostSample
from distrain.runners.records.snapshot import RankNow
from distrain.tui import marks
from distrain.tui.data.node_status import Gauge, NodeStatus, mean_of, sort_by_problem
from distrain.tui.data.run_feed import RunFrame
from distrain.tui.plotting.sparkline import bar, sparkline
from distrain.tui.widgets.colours import legible_style
from distrain.tui.widgets.node_pane import NodePane, NodeSection
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit

NA = "N/A"
WITH_CLOCK = 56  # cells from which there is room for the clock
MOST_HISTORY = 40  # cells


class HardwarePane(NodePane):
    """Shows the hardware of a frame."""

    HELP = (
        "Each GPU's utilisation (the share of time in which a kernel ran), memory, power, "
        "temperature and clock (in a wide pane: {app.full}), the history of two minutes, the marks "
        "of its ranks, and other processes that use it. N/A: the device does not report this. "
        "Without GPUs: CPU and memory of the host. Multi-node runs show one row per node: CPU and "
        "memory, the mean utilisation of its GPUs, the sum of their memory and power, and the "
        "hottest GPU. {run.fold} unfolds a node, {run.folds} unfolds all."
    )

    _frame: RunFrame | None = None

    def show(self, frame: RunFrame) -> None:
        self._frame = frame
        self.border_title = "GPUs" if any(node.gpus for node in frame.nodes) else "Host"
        self._paint()

    def _paint(self) -> None:
        if (frame := self._frame) is None:
            return
        background = self.background_colors[1]
        if len(frame.nodes) > 1:
            self._paint_nodes(frame, background)
        else:
            self.put_lines(host_lines(frame, self.width, background))

    def _paint_nodes(self, frame: RunFrame, background: Color) -> None:
        nodes = frame.nodes
        straggler = frame.diagnosis.straggler
        self.border_title = f"{len(nodes):,} nodes"
        self.border_subtitle = Content(_hottest(nodes))
        columns = _columns(nodes, self.width)
        sections = [
            NodeSection(
                node,
                partial(_summary, node, columns),
                self._lines_of(node, frame, background),
            )
            for node in sort_by_problem(nodes, straggler.rank if straggler else None)
        ]
        head = Text(" ").join(align(Text(column.name, "dim"), column) for column in columns)
        self.put_sections([head], sections)

    def _lines_of(
        self, node: NodeStatus, frame: RunFrame, background: Color
    ) -> list[Callable[[], Text]]:
        """Return builders of the lines of a node. Only those of GPUs are worth building late."""
        room = self.width - 2
        if not node.gpus:
            host = _host(node.host, room) if node.host else []
            lines = [*host, *(_rank(rank, room, background) for rank in node.ranks)]
            return [partial(_indented, line.copy) for line in lines]
        builders: list[Callable[[], Text]] = []
        for gauge in node.gpus:
            builders.append(partial(_indented, partial(_gpu, gauge, node, room, background)))
            if others := _other_processes(gauge.sample, node, frame):
                builders.append(partial(_indented, Text("  ").append_text(others).copy))
        return builders


def _indented(build: Callable[[], Text]) -> Text:
    return Text("  ") + build()


def host_lines(frame: RunFrame, width: int, background: Color) -> list[Text]:
    """Return the lines of a single host, legible on the background."""
    lines = []
    for node in frame.nodes:
        lines += _gpus(node, frame, width, background) if node.gpus else []
        if node.host:
            lines += _host(node.host, width)
        if not node.gpus:
            lines += [_rank(now, width, background) for now in node.ranks]
    live = frame.snapshot.state.live
    return lines or [Text("no samples yet" if live else "no samples", "dim")]


# --- the row of a node ---------------------------------------------------------------------------

COLUMNS = (
    TableColumn("CPU", 5),
    TableColumn("memory", 8, 2),
    TableColumn("GPU", 5, 1),
    TableColumn("GPU mem", 8, 3),
    TableColumn("hottest", 7, 1),
    TableColumn("power", 8, 4),
)
OF_GPUS = ("GPU", "GPU mem", "hottest", "power")


def _columns(nodes: Sequence[NodeStatus], width: int) -> list[TableColumn]:
    name = TableColumn(
        "node", max(min(max(len(node.name) for node in nodes) + 2, 20), 6), right=False
    )
    gpus = any(node.gpus for node in nodes)
    return columns_that_fit([name, *(c for c in COLUMNS if gpus or c.name not in OF_GPUS)], width)


def _summary(node: NodeStatus, columns: Sequence[TableColumn]) -> Text:
    first, *others = columns
    name = Text(node.name, "bold red" if node.problem else "bold")
    line = Text(no_wrap=True).append_text(align(name, first._replace(width=first.width - 2)))
    cells = _cells(node)
    for column in others:
        line.append(" ").append_text(align(Text(cells[column.name]), column))
    return line.append(f" {node.problem}", "red") if node.problem else line


def _cells(node: NodeStatus) -> dict[str, str]:
    host = node.host.sample if node.host else None
    samples = [gauge.sample for gauge in node.gpus]
    heat = _known(sample.temperature for sample in samples)
    memory = _known(sample.memory_used for sample in samples)
    power = _known(sample.power for sample in samples)
    return {
        "CPU": formatting.MISSING if host is None else _percent(host.cpu),
        "memory": formatting.size(host.memory_used if host else None),
        "GPU": _percent(mean_of(sample.utilisation for sample in samples)),
        "GPU mem": _size(sum(memory) if memory else None),
        "hottest": _with_unit(max(heat, default=None), "°C"),
        "power": _with_unit(sum(power) if power else None, "W"),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _hottest(nodes: Sequence[NodeStatus]) -> str:
    """Return the hottest GPU of all nodes: "hottest: GPU 3 of node-07, 78 °C"."""
    heat = [
        (gauge.sample.temperature, -node.number, -gauge.sample.index, node.name)
        for node in nodes
        for gauge in node.gpus
        if gauge.sample.temperature is not None
    ]
    if not heat:
        return ""
    degrees, _, index, name = max(heat)
    return f"hottest: GPU {-index} of {name}, {_with_unit(degrees, '°C')}"


# --- one host ------------------------------------------------------------------------------------


def _gpus(node: NodeStatus, frame: RunFrame, width: int, background: Color) -> list[Text]:
    """Return the names of the GPUs, then a line for each, and one for other processes on it."""
    names = Counter(gauge.sample.name for gauge in node.gpus)
    title = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    lines = [Text(title, "dim")]
    for gauge in node.gpus:
        line = _gpu(gauge, node, width, background)
        others = _other_processes(gauge.sample, node, frame)
        if others and line.cell_len + 2 + others.cell_len <= width:
            line.append("  ").append_text(others)
            others = Text()
        lines += [line, Text("    ").append_text(others)] if others else [line]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _gpu(gauge: Gauge[GpuSample], node: NodeStatus, width: int, background: Color) -> Text:
    sample = gauge.sample
    line = Text.assemble((f"{sample.index:<2}", "bold")).append_text(
        _ranks(sample, node, background)
    )
    if gauge.lost:
        return line.append("  lost: no longer reports values", "bold red")
    figures = "  ".join(
        [
            f"{_memory(sample):>11}",
            f"{_with_unit(sample.power, 'W'):>6}",
            f"{_with_unit(sample.temperature, '°C'):>5}",
            *([f"{_with_unit(sample.sm_clock, 'MHz'):>8}"] if width >= WITH_CLOCK else []),
        ]
    )
    line.append(f"{_percent(sample.utilisation):>6} ")
    room = min(max(width - line.cell_len - len(figures) - 2, 4), MOST_HISTORY)
    line.append(_history(gauge, "utilisation", 100.0, room), "cyan")
    return line.append(f" {figures}")


def _ranks(sample: GpuSample, node: NodeStatus, background: Color) -> Text:
    """Return the marks of the ranks on a GPU; with `dp` one rank drives several GPUs."""
    rank_marks = [
        marks.rank_mark(now.info.rank)
        for now in node.ranks
        if now.info.device_uuid == sample.uuid or now.info.pid in sample.processes
    ]
    pairs = [(mark.shape, legible_style(mark.colour, background)) for mark in rank_marks]
    return Text.assemble(*pairs) if pairs else Text(" ")


def _other_processes(sample: GpuSample, node: NodeStatus, frame: RunFrame) -> Text:
    """Return the processes on a GPU that are not ranks of this run."""
    pids = {now.info.pid for now in node.ranks}
    processes = [
        f"{frame.process_names.get((sample.host, pid), 'process')} {pid} {_size(memory)}"
        for pid, memory in sample.processes.items()
        if pid not in pids
    ]
    return Text("others: " + ", ".join(processes), "yellow") if processes else Text()


def _host(gauge: Gauge[HostSample], width: int) -> list[Text]:
    sample = gauge.sample
    used, total = sample.memory_used, sample.memory_total
    figures = f" {formatting.size(used)} of {formatting.size(total)}"
    room = max(width - 16 - len(figures), 6)
    cpu = Text.assemble(("CPU     ", "bold"), f"{sample.cpu:4.0f} % ", no_wrap=True)
    cpu.append(_history(gauge, "cpu", 100.0, room), "cyan").append(f" load {sample.load:.2f}")
    memory = Text.assemble(("memory  ", "bold"), f"{100 * used / total:4.0f} % ", no_wrap=True)
    return [cpu, memory.append(bar(used / total, room), "green").append(figures)]


def _rank(now: RankNow, width: int, background: Color) -> Text:
    mark = marks.rank_mark(now.info.rank)
    name = f"{mark.shape} rank {now.info.rank}".ljust(9)
    line = Text.assemble((name, legible_style(mark.colour, background)), no_wrap=True)
    if now.cpu is None:
        return line.append("no samples", "dim")
    line.append(f"{now.cpu:4.0f} % of a core {formatting.size(now.rss):>8}")
    loaders = (now.processes or 1) - 1
    if loaders:
        text = f"  {formatting.plural(loaders, 'loader')}"
        if line.cell_len + len(text) <= width:
            line.append(text, "dim")
    return line


def _history(gauge: Gauge[Any], name: str, top: float, width: int) -> str:
    values = gauge.history[name] if len(gauge.history) else ()
    return sparkline(values, width, top)


def _percent(value: float | None) -> str:
    return NA if value is None else f"{value:.0f} %"


def _size(value: float | None) -> str:
    return NA if value is None else formatting.size(value)


def _memory(sample: GpuSample) -> str:
    """Return "38/141 GiB", or what the device reports of it."""
    if sample.memory_used is None:
        return NA
    total = "" if sample.memory_total is None else f"/{_gib(sample.memory_total)}"
    return f"{_gib(sample.memory_used)}{total} GiB"


def _gib(value: float) -> str:
    gib = value / 2**30
    return f"{gib:.0f}" if gib >= 9.95 else f"{gib:.1f}"


def _with_unit(value: float | None, unit: str) -> str:
    return NA if value is None else f"{value:.0f} {unit}"
