"""Every rank in a line: where it is, how fast, and what it spends its time on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.color import Color

from runners import events, words
from runners.snapshot import RankNow
from runners.stragglers import Straggler
from tui import marks
from tui.widgets import phases
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.inks import legible
from tui.widgets.text_pane import TextPane

COLUMNS = (
    Column("rank", 6, right=False),
    Column("device", 8, 1, right=False),
    Column("doing", 10, 4, right=False),
    Column("step", 9),
    Column("loss", 8),
    Column("samples/s", 9),
    Column("data", 5, 2),
    Column("compute", 7, 2),
    Column("wait", 5, 1),
    Column("optim", 5, 3),
    Column("other", 5, 6),
    Column("overlap", 7, 6),
    Column("CPU", 6, 5),
    Column("memory", 8, 5),
)
BAR = 16  # cells that the bar of phases is worth


class RankTable(TextPane):
    """`show` gives it the ranks."""

    HELP = (
        "Each rank's step, loss and rate over the last three seconds (of a run that has ended: "
        "rate and times over all steps), and what its time goes to: waiting for data, compute "
        "(forward and backward), waiting for the other ranks, optimizer, other work of the loop; "
        "and beside these the part in which gradients travelled behind backward (overlap). The "
        "rank that the others wait for is marked ◀, and what it is late with is named."
    )
    fixed = 1

    _ranks: Sequence[RankNow] = ()
    _late: Straggler | None = None

    def show(self, ranks: Sequence[RankNow], late: Straggler | None = None) -> None:
        self._ranks, self._late = ranks, late
        self._paint()

    def _paint(self) -> None:
        who, told = None, ""
        if (late := self._late) is not None:
            who = late.rank
            told = f"rank {who} holds the others back, late {late.where}"
        self.border_subtitle = told
        self.put(table(self._ranks, self.width, who, self.background_colors[1]))


def table(ranks: Sequence[RankNow], width: int, late: int | None, paper: Color) -> list[Text]:
    """The head and a line for each rank, as wide as there is room, to be seen on the paper."""
    columns = fitting(COLUMNS, width - BAR)
    bar = max(width - taken(columns), 0)
    head = Text(" ").join(aligned(Text(column.name, "dim"), column) for column in columns)
    head.append(" ").append_text(phases.legend(bar))
    lines = [_line(rank, columns, bar, late == rank.info.rank, paper) for rank in ranks]
    return [head, *lines]


def _line(now: RankNow, columns: Sequence[Column], bar: int, late: bool, paper: Color) -> Text:
    ink, cells = legible(marks.of_rank(now.info.rank).colour, paper), _cells(now)
    failed = now.info.phase == "failed" or now.info.code not in (None, 0)
    line = Text(no_wrap=True)
    for column in columns:
        style = ink if column.name == "rank" else "red" if failed else ""
        line.append_text(aligned(Text(cells[column.name], style), column)).append(" ")
    if bar > 2:
        line.append_text(phases.bar(now.shares, bar - 2))
    if late:
        line.append(" ◀", "bold red")
    return line


def _cells(now: RankNow) -> dict[str, str]:
    info, shares = now.info, now.shares
    known = bool(shares)
    compute = shares.get("forward", 0.0) + shares.get("backward", 0.0) if known else None
    return {
        "rank": f"{marks.of_rank(info.rank).shape} {info.rank}",
        "device": info.device or words.MISSING,
        "doing": _doing(now),
        "step": words.count(info.step),
        "loss": words.figure(now.loss),
        "samples/s": words.round_rate(now.samples_per_s),
        "data": words.percent(shares.get("data")),
        "compute": words.percent(compute),
        "wait": words.percent(shares.get("comm")),
        "optim": words.percent(shares.get("optimizer")),
        "other": words.percent(shares.get(events.OTHER)),
        "overlap": words.percent(shares.get("overlap")),
        "CPU": words.MISSING if now.cpu is None else f"{now.cpu:.0f} %",
        "memory": words.size(now.rss),
    }


def _doing(now: RankNow) -> str:
    code = now.info.code
    if code is None or now.info.finished:
        return now.info.phase
    return f"signal {-code}" if code < 0 else f"exit {code}"
