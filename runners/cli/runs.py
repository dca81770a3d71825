"""`runs`: all runs and benches in a table, or those that match a filter."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from distrain.runners import formatting
from distrain.runners.bench.handle import Bench, all_benches
from distrain.runners.cli.run_selection import current_status, select_rows
from distrain.runners.cli.terminal import TextColumn, format_table, print_json, print_message
from distrain.runners.errors import DistrainError
from distrain.runners.groups import choose_group
from distrain.runners.protocol.events import Job
from distrain.runners.records import job_status
from distrain.runners.records.reader import Record, list_records
from distrain.runners.records.run_ids import short_id
from distrain.runners.records.state import LIVE
from distrain.runners.session import runs_folder
from distrain.runners.system.processes import without_garbage_collection

COLUMNS = (
    TextColumn("run"),
    TextColumn("name", drop_order=3),
    TextColumn("group", drop_order=8),
    TextColumn("status"),
    TextColumn("setup", drop_order=1),
    TextColumn("ranks", right=True, drop_order=4),
    TextColumn("epochs", right=True, drop_order=5),
    TextColumn("steps", right=True, drop_order=6),
    TextColumn("samples/s", right=True, drop_order=2),
    TextColumn("metric", right=True),
    TextColumn("duration", right=True, drop_order=7),
    TextColumn("age", right=True),
)


def execute(arguments: Namespace) -> int:
    """Print runs and benches, newest first; errors of unreadable folders go to stderr."""
    runs_dir = runs_folder(arguments.runs_dir)
    errors: list[DistrainError] = []
    with without_garbage_collection():  # thousands of runs, of which nothing is garbage
        rows = read_rows(runs_dir, errors)
        found = select_rows(rows, arguments.filter) if arguments.filter else rows
        if arguments.group:
            group = _choose_group(arguments.group, rows, runs_dir)
            found = [row for row in found if row.get("group") == group]
    for unreadable in errors:
        print_message(f"distrain: {unreadable}")
    if arguments.json:
        print_json(found)
    elif found:
        print(_format_rows(found))
        for row in found:
            if row["kind"] == "run":
                _print_notes(row)
    elif rows:
        print_message(f"none of {formatting.plural(len(rows), 'run')} matches this filter")
    elif not errors:
        print_message(f"no runs in {runs_dir} yet; `distrain run ddp` starts one")
    return 0


def read_rows(runs_dir: Path, errors: list[DistrainError]) -> list[dict[str, Any]]:
    """Return runs and benches, newest first; what cannot be read is added to `errors`."""
    rows = []
    for record in list_records(runs_dir, on_error=errors.append):
        try:
            rows.append(_run_row(record))
        except DistrainError as error:
            errors.append(error)
        finally:
            record.close()
    for bench in all_benches(runs_dir, on_error=errors.append):
        try:
            rows.append(_bench_row(bench))
        except DistrainError as error:  # it was removed in the meantime
            errors.append(error)
    return sorted(rows, key=lambda row: float(row["created"]), reverse=True)


def _choose_group(wanted: str, rows: list[dict[str, Any]], runs_dir: Path) -> str:
    ids = dict.fromkeys(row["group"] for row in reversed(rows) if row.get("group"))
    return choose_group(wanted, [*ids], runs_dir)


def _format_rows(rows: list[dict[str, Any]]) -> str:
    """Return the table; without a column of groups where no run has one."""
    columns = [*COLUMNS]
    cells = [*map(_format_row, rows)]
    at = [column.title for column in columns].index("group")
    if not any(line[at] for line in cells):
        del columns[at]
        cells = [line[:at] + line[at + 1 :] for line in cells]
    return format_table(columns, cells)


def _print_notes(run: dict[str, Any]) -> None:
    """Print what a live run is waiting for, and its reason or its job."""
    for reason in run["waiting_for"]:
        print_message(f"{run['run_id']} is waiting: {reason}")
    if run["status"] not in LIVE:
        return
    if run["reason"]:
        print_message(f"{run['run_id']}: {run['reason']}")
    elif run["job"]:
        print_message(f"{run['run_id']}: {job_status.describe(run['job'], time.time())}")


def _run_row(record: Record) -> dict[str, Any]:
    """Return a run's summary with what lists show in addition."""
    state = record.state
    meta = record.meta
    return {
        "kind": "run",
        **record.summary(state),
        "name": meta.name,
        "tags": meta.tags,
        "notes": meta.notes,
        "hosts": state.hosts or [state.host],
        "created": state.created,
        "parent": state.parent,
        "group": state.group or None,
        "reason": state.reason,
        "waiting_for": state.waiting_for,
        "job": state.job,
        "attempts": state.attempts,
        "stall": stall.as_json(time.time()) if (stall := state.current_stall) else None,
        "recovering": state.live and state.attempts > 0 and _is_recovering(record),
    }


def _is_recovering(record: Record) -> bool:
    """Return whether the ranks of a live run repeat the steps that a restart has lost."""
    from distrain.runners.records.snapshot import Follower

    follower = Follower(record)
    follower.new_events(kinds=())
    return follower.snapshot().current_status == "recovering"


def _bench_row(bench: Bench) -> dict[str, Any]:
    state = bench.state
    return {
        "kind": "bench",
        "bench_id": bench.id,
        "dir": str(bench.dir),
        "name": bench.name,
        "tags": bench.meta.tags,
        "notes": bench.meta.notes,
        "status": state.status,
        "reason": state.reason,
        "created": state.created,
        "candidates": list(bench.definition.configs),
        "rounds": state.rounds,
        "duration_s": sum(measurement.duration_s for measurement in state.measurements),
        "waiting_for": [],
    }


def _format_row(row: dict[str, Any]) -> list[str]:
    return _format_bench(row) if row["kind"] == "bench" else _format_run(row)


def _format_bench(bench: dict[str, Any]) -> list[str]:
    missing = formatting.MISSING
    return [
        bench["bench_id"],
        bench["name"],
        "",
        bench["status"],
        f"bench of {', '.join(bench['candidates'])}",
        *(missing, missing, missing, missing),  # ranks, epochs, steps, samples/s
        formatting.plural(bench["rounds"], "round"),
        formatting.duration(bench["duration_s"]),
        formatting.age(bench["created"]),
    ]


def _format_run(run: dict[str, Any]) -> list[str]:
    return [
        run["run_id"],
        run["name"],
        short_id(run["group"] or ""),
        _format_status(run),
        " ".join(filter(None, (run["strategy"], run["launcher"], run["precision"]))),
        formatting.count(run["world_size"]),
        formatting.count(run["epochs"]),
        formatting.count(run["steps"]),
        formatting.round_rate(run["samples_per_s"]),
        _format_metric(run["eval"]),
        formatting.duration(run["duration_s"]),
        formatting.age(run["created"]),
    ]


def _format_status(run: dict[str, Any]) -> str:
    """Return the status, with the state of the Slurm job if it differs: "starting PENDING"."""
    status = current_status(run)
    job: Job | None = run["job"]
    if job is None or job.state in (job_status.RUNNING, "COMPLETED"):
        return status
    if status not in LIVE and not job_status.has_ended(job):  # its end was not observed
        return status
    return f"{status} {job.state}"


def _format_metric(evaluation: dict[str, Any] | None) -> str:
    """Return the accuracy or another share, else the first metric; empty without an evaluation."""
    metrics = evaluation or {}
    for name in formatting.sort_metrics(metrics):
        return formatting.metric(name, metrics[name])
    return ""
