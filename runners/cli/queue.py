"""`queue`: which runs use the devices of this host, which wait for them, and in which order."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from distrain.runners.cli.terminal import TextColumn, format_table, print_json, print_message
from distrain.runners.errors import RunNotFoundError
from distrain.runners.formatting import printable
from distrain.runners.records.run_ids import short_id
from distrain.runners.supervision.queue_order import QueuedRun, move, read_queue

COLUMNS = (
    TextColumn("place", right=True),
    TextColumn("run"),
    TextColumn("name"),
    TextColumn("group", drop_order=2),
    TextColumn("status"),
    TextColumn("devices", drop_order=1),
)


def execute(arguments: Namespace) -> int:
    """List the queue, or move a run in it."""
    queue = read_queue()
    if arguments.action == "move":
        run_id = _choose(arguments.run, queue)
        place = move(run_id, arguments.step)
        print_message(f"{run_id} is number {place} in the queue")
    elif arguments.json:
        print_json([_data(run) for run in queue])
    elif queue:
        print(format_table(COLUMNS, map(_cells, queue)))
        for run in queue:
            for text in run.waiting_for:
                print_message(f"{run.entry.run_id} waits: {text}")
    else:
        print_message("no run uses or waits for the devices of this host")
    return 0


def _choose(wanted: str, queue: Sequence[QueuedRun]) -> str:
    """Return the id of the run that this id, unique beginning of one, or name means."""
    entries = [run.entry for run in queue]
    exact = [entry.run_id for entry in entries if wanted in (entry.run_id, entry.name)]
    matches = exact or [entry.run_id for entry in entries if entry.run_id.startswith(wanted)]
    if len(matches) != 1:
        why = f"is ambiguous; it matches {', '.join(matches)}" if matches else "is not in the queue"
        raise RunNotFoundError(f"run {wanted!r} {why}; `distrain queue` lists it")
    return matches[0]


def _data(run: QueuedRun) -> dict[str, object]:
    return {
        "place": run.place,
        "run_id": run.entry.run_id,
        "dir": run.entry.dir,
        "name": run.entry.name,
        "group": (run.state.group if run.state else "") or None,
        "status": run.state.status if run.state else None,
        "gpus": sorted(run.entry.gpus.values()),
        "cores": run.entry.cores,
        "waiting_for": run.waiting_for,
    }


def _cells(run: QueuedRun) -> list[str]:
    return [
        str(run.place or ""),
        run.entry.run_id,
        printable(run.entry.name),
        short_id(run.state.group) if run.state else "",
        run.state.current_status if run.state else "unreadable",
        run.devices,
    ]
