"""Every rank in a line: where it is, how fast, and what it spends its time on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from rich.text import Text
from textual.color import Color

from runners import events, words
from runners.series import rate_of_all
from runners.snapshot import RankNow
from runners.stragglers import Straggler
from tui import marks
from tui.data.nodes import Node, by_trouble, has_failed
from tui.widgets import phases
from tui.widgets.columns import Column, aligned, fitting, taken
from tui.widgets.inks import legible
from tui.widgets.node_pane import NodePane, Part

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
LONGEST_NAME = 20  # cells of a node's
SHARES = (*events.PHASES, events.OTHER, "overlap")


class RankTable(NodePane):
    """`show` gives it the machines with their ranks."""

    HELP = (
        "Each rank's step, loss and rate over the last three seconds (of a run that has ended: "
        "rate and times over all steps), and what its time goes to: waiting for data, compute "
        "(forward and backward), waiting for the other ranks, optimizer, other work of the loop; "
        "and beside these the part in which gradients travelled behind backward (overlap). The "
        "rank that the others wait for is marked ◀, and what it is late with is named. Of several "
        "nodes each has a line, those first that have failed, are silent or hold the others back: "
        "the step that all its ranks have done, their rates added up, their mean shares and CPU, "
        "their memory together. {run.fold} shows the ranks of one, {run.folds} those of all."
    )

    _machines: Sequence[Node] = ()
    _late: Straggler | None = None

    def show(self, nodes: Sequence[Node], late: Straggler | None = None) -> None:
        self._machines, self._late = nodes, late
        self._paint()

    def _paint(self) -> None:
        who, told = None, ""
        if (late := self._late) is not None:
            who = late.rank
            told = f"rank {who} holds the others back, late {late.where}"
        paper = self.background_colors[1]
        if len(self._machines) > 1:
            self._paint_nodes(who, told, paper)
        else:
            self.border_subtitle = told
            ranks = [rank for node in self._machines for rank in node.ranks]
            self.put_alone(table(ranks, self.width, who, paper), fixed=1)

    def _paint_nodes(self, who: int | None, told: str, paper: Color) -> None:
        ranks = sum(len(node.ranks) for node in self._machines)
        amiss = sum(bool(node.amiss) for node in self._machines)
        known = words.things(ranks, "rank") if ranks else "no rank yet"
        self.border_title = f"{known} on {len(self._machines):,} nodes"
        troubled = f"{words.things(amiss, 'node')} in trouble" if amiss else ""
        self.border_subtitle = " · ".join(filter(None, (troubled, told)))
        grid = _grid(self.width, max(len(node.name) for node in self._machines))
        parts = [
            Part(
                node,
                partial(_node, node, grid, who),
                [partial(_under, rank, grid, who == rank.info.rank, paper) for rank in node.ranks],
            )
            for node in by_trouble(self._machines, who)
        ]
        self.put_parts([_head(grid)], parts)


class Grid(NamedTuple):
    """The columns that fit, and the cells that are left for the bar of phases."""

    columns: Sequence[Column]
    bar: int


def table(ranks: Sequence[RankNow], width: int, late: int | None, paper: Color) -> list[Text]:
    """The head and a line for each rank, as wide as there is room, to be seen on the paper."""
    columns = fitting(COLUMNS, width - BAR)
    grid = Grid(columns, max(width - taken(columns), 0))
    return [_head(grid), *(_line(rank, grid, late == rank.info.rank, paper) for rank in ranks)]


def _grid(width: int, longest: int) -> Grid:
    """That of nodes, whose names stand where ranks have their marks."""
    first = Column("node", min(max(longest + 2, 8), LONGEST_NAME), right=False)
    columns = fitting([first, *COLUMNS[1:]], width - BAR)
    return Grid(columns, max(width - taken(columns), 0))


def _head(grid: Grid) -> Text:
    head = Text(" ").join(aligned(Text(column.name, "dim"), column) for column in grid.columns)
    return head.append(" ").append_text(phases.legend(grid.bar))


def _line(now: RankNow, grid: Grid, late: bool, paper: Color) -> Text:
    ink, cells = legible(marks.of_rank(now.info.rank).colour, paper), _cells(now)
    failed = has_failed(now)
    line = Text(no_wrap=True)
    for column in grid.columns:
        first = column is grid.columns[0]
        style = ink if first else "red" if failed else ""
        text = cells["rank" if first else column.name]
        line.append_text(aligned(Text(text, style), column)).append(" ")
    return _with_bar(line, now.shares, grid.bar, late)


def _with_bar(line: Text, shares: Mapping[str, float], room: int, late: bool) -> Text:
    if room > 2:
        line.append_text(phases.bar(shares, room - 2))
    if late:
        line.append(" ◀", "bold red")
    return line


def _under(now: RankNow, grid: Grid, late: bool, paper: Color) -> Text:
    """A rank's line below its node's."""
    first, *others = grid.columns
    narrower = Grid([first._replace(width=first.width - 2), *others], grid.bar)
    return Text("  ").append_text(_line(now, narrower, late, paper))


def _node(node: Node, grid: Grid, late: int | None) -> Text:
    """A node's line, as far as the fold's mark leaves room."""
    cells, line = _cells_of_node(node), Text(no_wrap=True)
    first, *others = grid.columns
    style = "bold red" if node.amiss else "bold"
    line.append_text(aligned(Text(node.name, style), first._replace(width=first.width - 2)))
    for column in others:
        line.append(" ").append_text(aligned(Text(cells[column.name]), column))
    line.append(" ")
    if node.amiss or node.lacks:
        return line.append(node.amiss or node.lacks, "red" if node.amiss else "dim")
    shares = {name: mean_of(rank.shares.get(name) for rank in node.ranks) for name in SHARES}
    known = {name: share for name, share in shares.items() if share is not None}
    return _with_bar(line, known, grid.bar, late in {rank.info.rank for rank in node.ranks})


def _cells_of_node(node: Node) -> dict[str, str]:
    ranks = node.ranks
    shares = {name: mean_of(rank.shares.get(name) for rank in ranks) for name in SHARES}
    forward, backward = shares["forward"], shares["backward"]
    compute = None if forward is None or backward is None else forward + backward
    cpu = mean_of(rank.cpu for rank in ranks)
    memory = [rank.rss for rank in ranks if rank.rss is not None]
    doing = sorted({_doing(rank) for rank in ranks})
    return {
        "device": words.span([rank.info.rank for rank in ranks]),
        "doing": doing[0] if len(doing) == 1 else "various" if doing else words.MISSING,
        "step": words.count(min((rank.info.step for rank in ranks), default=None)),
        "loss": "",
        "samples/s": words.round_rate(rate_of_all(rank.samples_per_s for rank in ranks)),
        "data": words.percent(shares["data"]),
        "compute": words.percent(compute),
        "wait": words.percent(shares["comm"]),
        "optim": words.percent(shares["optimizer"]),
        "other": words.percent(shares[events.OTHER]),
        "overlap": words.percent(shares["overlap"]),
        "CPU": words.MISSING if cpu is None else f"{cpu:.0f} %",
        "memory": words.size(sum(memory) if memory else None),
    }


def mean_of(values: Iterable[float | None]) -> float | None:
    """Of the known ones."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


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
