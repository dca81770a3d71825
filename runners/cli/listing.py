"""`runs`: all runs in a table."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from runners import jobs, words
from runners.bench import Bench, all_benches
from runners.cli.text import Column, print_json, say, table
from runners.errors import DistrainError
from runners.events import Job
from runners.record import Record, list_records
from runners.runs import runs_folder
from runners.state import LIVE

COLUMNS = (
    Column("run"),
    Column("name", spare=3),
    Column("status"),
    Column("how", spare=1),
    Column("ranks", right=True, spare=4),
    Column("epochs", right=True, spare=5),
    Column("steps", right=True, spare=6),
    Column("samples/s", right=True, spare=2),
    Column("metric", right=True),
    Column("took", right=True, spare=7),
    Column("age", right=True),
)


def runs(arguments: Namespace) -> int:
    """Print all runs and benches, newest first; a folder that cannot be read is named on stderr."""
    folder = runs_folder(arguments.runs_dir)
    rows = []
    unreadable: list[DistrainError] = []
    for record in reversed(list_records(folder, on_error=unreadable.append)):
        try:
            rows.append(one(record))
        except DistrainError as error:
            unreadable.append(error)
        finally:
            record.close()
    rows += map(bench_row, all_benches(folder, on_error=unreadable.append))
    rows.sort(key=_age, reverse=True)
    for complaint in unreadable:
        say(f"distrain: {complaint}")
    if arguments.json:
        print_json(rows)
    elif rows:
        print(table(COLUMNS, map(_cells, rows)))
        for row in rows:
            for sentence in row["waiting_for"]:
                say(f"{row['run_id']} waits: {sentence}")
            if row["kind"] == "run" and row["status"] in LIVE and row["reason"]:
                say(f"{row['run_id']}: {row['reason']}")
            elif (job := row.get("job")) and row["status"] in LIVE:
                say(f"{row['run_id']}: {jobs.told(job, time.time())}")
    elif not unreadable:
        say(f"no runs in {folder} yet; `distrain run ddp` starts one")
    return 0


def one(record: Record) -> dict[str, Any]:
    """A run's summary with the few things that lists need beside it."""
    state = record.state
    return {
        "kind": "run",
        **record.summary(),
        "name": record.name,
        "created": state.created,
        "parent": state.parent,
        "reason": state.reason,
        "waiting_for": state.waiting_for,
        "job": state.job,
        "attempts": state.attempts,
    }


def bench_row(bench: Bench) -> dict[str, Any]:
    """A bench as it stands, for lists."""
    state = bench.state
    return {
        "kind": "bench",
        "bench_id": bench.id,
        "dir": str(bench.dir),
        "name": bench.name,
        "status": state.status,
        "reason": state.reason,
        "created": state.created,
        "contestants": list(bench.definition.configs),
        "rounds": state.rounds,
        "duration_s": sum(each.took for each in state.measurements),
        "waiting_for": [],
    }


def _age(row: dict[str, Any]) -> float:
    created: float = row["created"]
    return created


def headline_metric(evaluation: dict[str, Any] | None) -> str:
    """The first share of right answers, else the first metric; empty without an evaluation."""
    values = evaluation or {}
    return next((words.metric(name, values[name]) for name in words.shares_first(values)), "")


def _cells(row: dict[str, Any]) -> list[str]:
    return _bench_cells(row) if row["kind"] == "bench" else _run_cells(row)


def _bench_cells(bench: dict[str, Any]) -> list[str]:
    missing = words.MISSING
    return [
        bench["bench_id"],
        bench["name"],
        bench["status"],
        f"bench of {' '.join(bench['contestants'])}",
        *(missing, missing, missing, missing),
        words.things(bench["rounds"], "round"),
        words.duration(bench["duration_s"]),
        words.age(bench["created"]),
    ]


def _status(run: dict[str, Any]) -> str:
    """With the state of its job, where that is another thing: "starting PENDING"."""
    job: Job | None = run["job"]
    if job is None or job.state in (jobs.RUNNING, "COMPLETED"):
        return str(run["status"])
    if run["status"] not in LIVE and not jobs.over(job):  # nobody saw it end
        return str(run["status"])
    return f"{run['status']} {job.state}"


def _run_cells(run: dict[str, Any]) -> list[str]:
    return [
        run["run_id"],
        run["name"],
        _status(run),
        f"{run['strategy']} {run['launcher']} {run['precision']}",
        words.count(run["world_size"]),
        words.count(run["epochs"]),
        words.count(run["steps"]),
        words.round_rate(run["samples_per_s"]),
        headline_metric(run["eval"]),
        words.duration(run["duration_s"]),
        words.age(run["created"]),
    ]
