"""The machine while it trains: GPUs with who uses them, or the host's cores and memory."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from runners import words
from runners.events import GpuSample, HostSample, RankSample
from runners.snapshot import RankNow
from tui import marks
from tui.data.feed import Frame, Gauge
from tui.spark import bar, spark
from tui.widgets.text_pane import TextPane

NA = "N/A"


class Hardware(TextPane):
    """`show` gives it a frame."""

    HELP = (
        "Each GPU's utilisation (a kernel was running, not that the chip was busy), memory, power, "
        "temperature and clock, with two minutes of history; below it the ranks and the other "
        "processes that use it. N/A: the device does not offer this. Without GPUs: the host."
    )

    def show(self, frame: Frame) -> None:
        self.border_title = "GPUs" if frame.gpus else "machine"
        self.put(picture(frame, self.width))


def picture(frame: Frame, width: int) -> list[Text]:
    """All lines of the pane."""
    lines = [line for gauge in frame.gpus for line in _gpu(gauge, frame, width)]
    if frame.host:
        lines += _host(frame.host, width)
    if not frame.gpus:
        lines += [_rank(now, frame.usage.get(now.info.rank)) for now in frame.snapshot.ranks]
    return lines or [Text("no sample yet", "dim")]


def _gpu(gauge: Gauge[GpuSample], frame: Frame, width: int) -> list[Text]:
    sample = gauge.sample
    title = Text(f"{sample.gpu} ", "bold").append(sample.name, "")
    used_by = _users(sample, frame)
    head = Text(no_wrap=True).append_text(title)
    if len(head) + 2 + used_by.cell_len <= width:
        head.append("  ").append_text(used_by)
        used_by = Text()
    lines = [head, _meters(gauge, width)]
    return [*lines, used_by] if used_by else lines


def _meters(gauge: Gauge[GpuSample], width: int) -> Text:
    sample, room = gauge.sample, max((width - 60) // 2, 0)
    line = Text("  ", no_wrap=True)
    line.append(_percent(sample.utilisation).rjust(5) + " ")
    line.append(_history(gauge, "utilisation", 100.0, max(room, 8)), "cyan")
    used, total = sample.memory_used, sample.memory_total
    line.append(f"  {_size(used)}/{_size(total)} ")
    if room >= 6 and used is not None and total:
        line.append(bar(used / total, min(room, 12)), "green").append(" ")
    line.append(f" {_of(sample.power, 'W')}  {_of(sample.temperature, '°C')}")
    return line.append(f"  {_of(sample.sm_clock, 'MHz')}", "dim")


def _users(sample: GpuSample, frame: Frame) -> Text:
    pids = {now.info.pid: now.info.rank for now in frame.snapshot.ranks}
    here = [n.info.rank for n in frame.snapshot.ranks if n.info.device_uuid == sample.uuid]
    text = Text(no_wrap=True)
    for rank in here:
        mark = marks.of_rank(rank)
        text.append(f"{mark.shape} rank {rank}  ", mark.colour)
    for pid, memory in (sample.processes or {}).items():
        if pid not in pids:
            name = frame.names.get(pid, "process")
            text.append(f"{name} {pid} {_size(memory)}  ", "yellow")
    return text or Text("no process on it", "dim")


def _host(gauge: Gauge[HostSample], width: int) -> list[Text]:
    sample = gauge.sample
    room = max(width - 34, 8)
    cpu = Text("CPU     ", "bold", no_wrap=True).append(f"{sample.cpu:4.0f} %  ", "")
    cpu.append(_history(gauge, "cpu", 100.0, room), "cyan").append(f"  load {sample.load:.2f}")
    memory = Text("memory  ", "bold", no_wrap=True)
    memory.append(words.percent(sample.memory_used / sample.memory_total).rjust(6) + "  ", "")
    memory.append(bar(sample.memory_used / sample.memory_total, room), "green")
    memory.append(f"  {words.size(sample.memory_used)}/{words.size(sample.memory_total)}")
    return [cpu, memory]


def _rank(now: RankNow, usage: RankSample | None) -> Text:
    mark = marks.of_rank(now.info.rank)
    line = Text(f"{mark.shape} rank {now.info.rank}".ljust(9), mark.colour, no_wrap=True)
    if usage is None:
        return line.append("no process", "dim")
    line.append(f"{usage.cpu:4.0f} % of a core", "").append(f"  {words.size(usage.rss)}")
    loaders = usage.processes - 1
    return line.append(f"  {words.things(loaders, 'loader')}" if loaders else "", "dim")


def _history(gauge: Gauge[Any], name: str, top: float, width: int) -> str:
    values = gauge.history[name] if len(gauge.history) else ()
    return spark(values, width, top)


def _percent(value: float | None) -> str:
    return NA if value is None else f"{value:.0f} %"


def _size(value: float | None) -> str:
    return NA if value is None else words.size(value)


def _of(value: float | None, unit: str) -> str:
    return f"{NA} {unit}" if value is None else f"{value:.0f} {unit}"
