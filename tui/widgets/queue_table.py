"""The runs that use the devices of this host, and the queue for them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.records.run_ids import short_id
from distrain.runners.supervision.queue_order import QueuedRun
from distrain.tui.keymap import insert_keys
from distrain.tui.widgets.colours import STATUSES, UNKNOWN
from distrain.tui.widgets.cursor_pane import CursorPane
from distrain.tui.widgets.table_columns import TableColumn, align, columns_that_fit, total_width
from distrain.tui.widgets.text_pane import wrapped

COLUMNS = (
    TableColumn("status", 11, right=False),
    TableColumn("devices", 14, 2, right=False),
    TableColumn("group", 20, 3, right=False),
)
PLACE = 5  # cells
LEAST_NAME, MOST_NAME = 14, 30
LEAST_WAIT = 24


class QueueTable(CursorPane):
    """A row per run: those that train first, then those that wait, in the order of their start."""

    HELP = (
        "Runs that use devices of this host, of any runs folder, and the queue. {queue.up} and "
        "{queue.down} move a waiting run, {queue.stop} removes it or stops a running one."
    )

    def __init__(self) -> None:
        super().__init__("Queue")
        self._runs: Sequence[QueuedRun] = ()

    def show(self, runs: Sequence[QueuedRun]) -> None:
        self._runs = runs
        waiting = sum(run.place is not None for run in runs)
        self.border_subtitle = f"{len(runs) - waiting} started · {waiting} waiting"
        self._paint()

    def _paint(self) -> None:
        if not self.width:
            return
        lines = queue_lines(self._runs, self.width)
        if not self._runs:
            lines = [Text("No run uses the devices of this host."), Text()]
            lines.append(
                Text(insert_keys("{launch.queue} on the launch screen queues a run.", self.app))
            )
        elif (run := self.run) is not None and run.waiting_for:
            lines += [Text(), Text(f"{_name(run)} waits for:", "dim")]
            for text in _obstacles(run, self._runs):
                lines += wrapped(text, "", self.width, indent=2)
        self.put_rows([run.entry.run_id for run in self._runs], lines)

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._paint()

    @property
    def run(self) -> QueuedRun | None:
        """Return the run under the cursor."""
        return next((run for run in self._runs if run.entry.run_id == self.current), None)


def _obstacles(run: QueuedRun, others: Sequence[QueuedRun]) -> list[str]:
    """Return what a run waits for, with the names of other runs in place of their ids."""
    names = [(other.entry.run_id, other.entry.name, _name(other)) for other in others]
    return [with_names(formatting.single_line(text), names) for text in run.waiting_for]


def with_names(text: str, runs: Sequence[tuple[str, str, str]]) -> str:
    """Return what a run waits for with shorter names of other runs: each is (id, its own name, the
    name that is shown).
    """
    for id, name, shown in runs:
        text = text.replace(f"run {id} ({name})" if name else f"run {id}", shown)
    return text


def _name(run: QueuedRun) -> str:
    return formatting.printable(run.entry.name) or short_id(run.entry.run_id)


def queue_lines(runs: Sequence[QueuedRun], width: int) -> list[Text]:
    """Return the header and a line per run, with what it waits for at the end."""
    longest = max((len(_name(run)) for run in runs), default=0)
    name = TableColumn("run", min(max(longest, LEAST_NAME), MOST_NAME), right=False)
    left = width - PLACE - name.width - 2 - LEAST_WAIT
    columns = [name, *columns_that_fit(COLUMNS, left)]
    rest = max(width - PLACE - total_width(columns) - 1, 0)
    wait = TableColumn("waits for", rest, right=False)
    place = TableColumn("place", PLACE)
    head = align(Text("place", "dim"), place)
    for column in (*columns, wait):
        head.append(" ").append_text(align(Text(column.name, "dim"), column))
    lines = [head]
    for run in runs:
        line = align(Text(str(run.place or "")), place)
        cells = _cells(run, runs)
        for column in (*columns, wait):
            line.append(" ").append_text(align(cells[column.name], column))
        lines.append(line)
    return lines


def _cells(run: QueuedRun, others: Sequence[QueuedRun]) -> dict[str, Text]:
    state = run.state
    status = state.current_status if state else "unreadable"
    mark, colour = STATUSES.get(status, UNKNOWN)
    return {
        "run": Text(_name(run), "bold"),
        "status": Text(f"{mark} {status}", colour),
        "devices": Text(run.devices),
        "group": Text(short_id(state.group) if state else "", "dim"),
        "waits for": Text("; ".join(_obstacles(run, others))),
    }
