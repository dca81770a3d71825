"""A row per rank: its device, progress, rate, and how it spends its time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rich.text import Text
from textual.color import Color
from textual.content import Content

from distrain.runners import formatting
from distrain.runners.analysis.stragglers import Straggler
from distrain.runners.protocol import events
from distrain.runners.records.snapshot import RankNow
from distrain.runners.records.stall import RankPosition, Stall
from distrain.runners.records.state import RunError
from distrain.runners.records.timeseries.run_curve import add_rates
from distrain.tui import marks
from distrain.tui.data.node_status import NodeStatus, has_failed, mean_of, sort_by_problem
from distrain.tui.widgets import phase_bar
from distrain.tui.widgets.colours import legible_style
from distrain.tui.widgets.node_pane import NodePane, NodeSection
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width

COLUMNS = (
    TableColumn("rank", 6, right=False),
    TableColumn("device", 8, 1, right=False),
    TableColumn("phase", 10, 4, right=False),
    TableColumn("step", 9),
    TableColumn("loss", 8),
    TableColumn("samples/s", 9),
    TableColumn("data", 5, 2),
    TableColumn("compute", 7, 2),
    TableColumn("comm wait", 9, 1),
    TableColumn("optim", 5, 3),
    TableColumn("other", 5, 6),
    TableColumn("overlap", 7, 6),
    TableColumn("CPU", 6, 5),
    TableColumn("memory", 8, 5),
)
# distrain does not know the loss of a script, only what it logs.
OF_SCRIPTS = tuple(column for column in COLUMNS if column.name != "loss")
PHASE_IN_STALL = TableColumn("phase", 19, right=False)
PHASE_AFTER_FAILURE = TableColumn("phase", 10, right=False)
GAP = 2  # cells between the columns and the bar of phases, whose header is at its left
BAR = 12  # least cells of the bar of phases and the gap
LONGEST_NAME = 20  # most cells of a node's name
SHARES = (*events.PHASES, events.OTHER, "overlap")


class RankTable(NodePane):
    """Shows the nodes of a run with their ranks."""

    HELP = (
        "Each rank's step, loss (not of scripts) and rate over the last three seconds (after the "
        "end: over all steps), and the shares of its time: waiting for data, compute (forward and "
        "backward), waiting for other ranks (comm wait), optimizer, and other work of the loop. "
        "Overlap is the share in which gradients were exchanged during backward. ◀ marks the "
        "straggler that the other ranks wait for, with the cause. In a stall, the phase is where "
        "the rank is, and ranks that the others wait for are yellow; {run.stacks} shows their "
        "calls. After a failure, the rank that failed first comes first, in red and marked with ✘; "
        "ranks that ended because of it are dim. Multi-node runs show one row "
        "per node, nodes with problems and stragglers first: the step that all its ranks have "
        "completed, the sum of their rates and memory, and the mean of their shares and CPU. "
        "{run.fold} unfolds a node, {run.folds} unfolds all."
    )

    _run_nodes: Sequence[NodeStatus] = ()
    _straggler: Straggler | None = None
    _stall: Stall | None = None
    _error: RunError | None = None
    _columns: Sequence[TableColumn] = COLUMNS

    def show(
        self,
        nodes: Sequence[NodeStatus],
        straggler: Straggler | None = None,
        *,
        is_script: bool = False,
        stall: Stall | None = None,
        error: RunError | None = None,
    ) -> None:
        """Show the ranks of nodes; `error` is the failure that has ended the run."""
        self._run_nodes = nodes
        self._straggler = straggler
        self._stall = stall
        self._error = error
        columns = OF_SCRIPTS if is_script else COLUMNS
        phase = PHASE_IN_STALL if stall else PHASE_AFTER_FAILURE if error else None
        self._columns = [
            phase if phase and column.name == "phase" else column for column in columns
        ]
        self._paint()

    def _paint(self) -> None:
        notes = []
        if self._straggler and not self._error:
            notes.append(f"straggler: rank {self._straggler.rank}, slow {self._straggler.where}")
        marked = mark_ranks(self._straggler, self._stall, self._error)
        background = self.background_colors[1]
        if len(self._run_nodes) > 1:
            with_problem = sum(1 for node in self._run_nodes if node.problem)
            if with_problem:
                notes.insert(0, f"{formatting.plural(with_problem, 'node')} with problems")
            self._paint_nodes(marked, background)
        else:
            ranks = marked.sort([rank for node in self._run_nodes for rank in node.ranks])
            lines = table(ranks, self._columns, self.width, marked, background)
            self.put_lines(lines, fixed=1)
        self.border_subtitle = Content(" · ".join(notes)) if notes else self._legend

    @property
    def _legend(self) -> Content:
        """Return the letters of the bar of phases, where the header does not name the phases."""
        bar = fit_columns(self._columns, self.width).bar
        return Content() if phase_bar.has_room_for_words(bar) else phase_bar.letters(self.width)

    def _paint_nodes(self, marked: MarkedRanks, background: Color) -> None:
        count = sum(len(node.ranks) for node in self._run_nodes)
        no_ranks = self._run_nodes[0].waiting_for or "no ranks"
        ranks = formatting.plural(count, "rank") if count else no_ranks
        self.border_title = f"{ranks} on {len(self._run_nodes):,} nodes"
        longest_name = max(len(node.name) for node in self._run_nodes)
        columns = _node_columns(self._columns, self.width, longest_name)
        sections = [
            NodeSection(
                node,
                partial(_node_row, node, columns, marked),
                [
                    partial(_indented_row, rank, columns, marked, background)
                    for rank in marked.sort(node.ranks)
                ],
            )
            for node in sort_by_problem(self._run_nodes, marked.straggler, marked.culprit)
        ]
        self.put_sections([_header(columns)], sections)


class MarkedRanks(NamedTuple):
    """What is to be seen at a glance: the straggler, in a stall where each rank is, and after a
    failure which rank was the first.
    """

    straggler: int | None
    positions: Mapping[int, RankPosition]
    absent: frozenset[int]
    has_failed: bool = False  # the run
    culprit: int | None = None

    def phase(self, now: RankNow) -> str:
        """Return where a rank is in a stall, else what it has reported."""
        found = self.positions.get(now.info.rank)
        return (found.condition or found.phase if found else "") or _phase(now)

    def style(self, now: RankNow) -> str:
        """Return the style of a rank. Of a run that failed, only the culprit is red."""
        if self.has_failed:
            return "bold red" if now.info.rank == self.culprit else "dim"
        return "red" if has_failed(now) else "bold yellow" if now.info.rank in self.absent else ""

    def end_mark(self, ranks: Collection[int]) -> str:
        """Return the mark at the end of the row of these ranks."""
        if self.has_failed:
            return " ✘" if self.culprit in ranks else ""
        return " ◀" if self.straggler in ranks else ""

    def sort(self, ranks: Sequence[RankNow]) -> list[RankNow]:
        """Return the ranks, the culprit first."""
        return sorted(ranks, key=lambda now: now.info.rank != self.culprit)


def mark_ranks(
    straggler: Straggler | None, stall: Stall | None, error: RunError | None = None
) -> MarkedRanks:
    positions = {each.rank: each for each in stall.positions} if stall else {}
    absent = frozenset(stall.told_apart) if stall else frozenset()
    culprit = error.rank if error else None
    slow = straggler.rank if straggler else None
    return MarkedRanks(slow, positions, absent, error is not None, culprit)


class RankColumns(NamedTuple):
    """The columns that fit, and the remaining cells for the bar of phases after a gap."""

    columns: Sequence[TableColumn]
    bar: int


def fit_columns(all_columns: Sequence[TableColumn], width: int) -> RankColumns:
    fitting = columns_that_fit(all_columns, width - BAR)
    return RankColumns(fitting, _room_for_bar(width, fitting))


def table(
    ranks: Sequence[RankNow],
    all_columns: Sequence[TableColumn],
    width: int,
    marked: MarkedRanks,
    background: Color,
) -> list[Text]:
    """Return the header and a row per rank, fitted to a width and legible on the background."""
    columns = fit_columns(all_columns, width)
    rows = [_row(rank, columns, marked, background) for rank in ranks]
    return [_header(columns), *rows]


def _node_columns(all_columns: Sequence[TableColumn], width: int, longest_name: int) -> RankColumns:
    """Return the columns of a table of nodes, which has names in place of rank numbers."""
    first = TableColumn("node", min(max(longest_name + 2, 8), LONGEST_NAME), right=False)
    columns = columns_that_fit([first, *all_columns[1:]], width - BAR)
    return RankColumns(columns, _room_for_bar(width, columns))


def _room_for_bar(width: int, columns: Sequence[TableColumn]) -> int:
    """Return the cells after the columns, each of which has one cell of the gap."""
    return max(width - total_width(columns) - GAP + 1, 0)


def _header(columns: RankColumns) -> Text:
    names = (align(Text(column.name, "dim"), column) for column in columns.columns)
    return Text(" ").join(names).append(" " * GAP).append_text(phase_bar.legend(columns.bar))


def _row(now: RankNow, columns: RankColumns, marked: MarkedRanks, background: Color) -> Text:
    cells = _cells(now) | {"phase": marked.phase(now)}
    first, *others = columns.columns
    mark_style = legible_style(marks.rank_mark(now.info.rank).colour, background)
    line = Text(no_wrap=True).append_text(align(Text(cells["rank"], mark_style), first)).append(" ")
    style = marked.style(now)
    for column in others:
        line.append_text(align(Text(cells[column.name], style), column)).append(" ")
    line.append(" " * (GAP - 1))
    return _with_bar(line, now.shares, columns.bar, marked.end_mark([now.info.rank]))


def _with_bar(line: Text, shares: Mapping[str, float], room: int, end_mark: str) -> Text:
    if room > 2:
        line.append_text(phase_bar.bar(shares, room - 2))
    return line.append(end_mark, "bold red")


def _indented_row(
    now: RankNow, columns: RankColumns, marked: MarkedRanks, background: Color
) -> Text:
    """Return the row of a rank below its node."""
    first, *others = columns.columns
    narrower = RankColumns([first._replace(width=first.width - 2), *others], columns.bar)
    return Text("  ").append_text(_row(now, narrower, marked, background))


def _node_row(node: NodeStatus, columns: RankColumns, marked: MarkedRanks) -> Text:
    """Return the row of a node, without the fold mark at its start."""
    cells = _cells_of_node(node)
    line = Text(no_wrap=True)
    first, *others = columns.columns
    numbers = [rank.info.rank for rank in node.ranks]
    is_secondary = marked.has_failed and marked.culprit not in numbers
    red = "dim" if is_secondary else "red"
    style = f"bold {red}" if node.problem else "bold"
    line.append_text(align(Text(node.name, style), first._replace(width=first.width - 2)))
    for column in others:
        line.append(" ").append_text(align(Text(cells[column.name]), column))
    line.append(" " * GAP)
    if node.problem or node.waiting_for:
        return line.append(node.problem or node.waiting_for, red if node.problem else "dim")
    shares = {name: mean_of(rank.shares.get(name) for rank in node.ranks) for name in SHARES}
    known = {name: share for name, share in shares.items() if share is not None}
    return _with_bar(line, known, columns.bar, marked.end_mark(numbers))


def _cells_of_node(node: NodeStatus) -> dict[str, str]:
    ranks = node.ranks
    shares = {name: mean_of(rank.shares.get(name) for rank in ranks) for name in SHARES}
    forward, backward = shares["forward"], shares["backward"]
    compute = None if forward is None or backward is None else forward + backward
    cpu = mean_of(rank.cpu for rank in ranks)
    memory = [rank.rss for rank in ranks if rank.rss is not None]
    phases = sorted({_phase(rank) for rank in ranks})
    return {
        "device": formatting.ranges([rank.info.rank for rank in ranks]),
        "phase": _common(phases),
        "step": formatting.count(min((rank.info.step for rank in ranks), default=None)),
        "loss": "",
        "samples/s": formatting.round_rate(add_rates(rank.samples_per_s for rank in ranks)),
        "data": formatting.percent(shares["data"]),
        "compute": formatting.percent(compute),
        "comm wait": formatting.percent(shares["comm"]),
        "optim": formatting.percent(shares["optimizer"]),
        "other": formatting.percent(shares[events.OTHER]),
        "overlap": formatting.percent(shares["overlap"]),
        "CPU": formatting.MISSING if cpu is None else f"{cpu:.0f} %",
        "memory": formatting.size(sum(memory) if memory else None),
    }


def _common(phases: Sequence[str]) -> str:
    if not phases:
        return formatting.MISSING
    return phases[0] if len(phases) == 1 else "various"


def _cells(now: RankNow) -> dict[str, str]:
    info = now.info
    shares = now.shares
    computes = [shares[name] for name in ("forward", "backward") if name in shares]
    return {
        "rank": f"{marks.rank_mark(info.rank).shape} {info.rank}",
        "device": info.device or formatting.MISSING,
        "phase": _phase(now),
        "step": formatting.count(info.step),
        "loss": formatting.figure(now.loss),
        "samples/s": formatting.round_rate(now.samples_per_s),
        "data": formatting.percent(shares.get("data")),
        "compute": formatting.percent(sum(computes) if computes else None),
        "comm wait": formatting.percent(shares.get("comm")),
        "optim": formatting.percent(shares.get("optimizer")),
        "other": formatting.percent(shares.get(events.OTHER)),
        "overlap": formatting.percent(shares.get("overlap")),
        "CPU": formatting.MISSING if now.cpu is None else f"{now.cpu:.0f} %",
        "memory": formatting.size(now.rss),
    }


def _phase(now: RankNow) -> str:
    code = now.info.code
    if code is None or now.info.finished:
        return now.info.phase
    return f"signal {-code}" if code < 0 else f"exit {code}"
