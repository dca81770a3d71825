"""`show`: everything about one run on one page."""

from __future__ import annotations

import shlex
from argparse import Namespace
from typing import Any

from msgspec import to_builtins

from runners import jobs, words
from runners.bench import Bench
from runners.cli import ending
from runners.cli.text import Column, fields, painted, print_json, table
from runners.config import RunConfig, differences
from runners.diagnosis import Diagnosis, diagnose
from runners.events import OTHER, PHASES, Evaluation, Notice, Saved
from runners.finding import find
from runners.record import Record
from runners.snapshot import Follower, Snapshot
from runners.state import RunState


def show(arguments: Namespace) -> int:
    """Print the page, or with --json one object."""
    found = find(arguments.run, arguments.runs_dir)
    if isinstance(found, Bench):
        return _show_bench(found, arguments.json)
    record = found.record
    if arguments.json:
        print_json(everything(record))
    else:
        print(page(record))
    return 0


def _show_bench(bench: Bench, as_json: bool) -> int:
    from runners.cli import comparing

    state = bench.state
    if as_json:
        print_json({**to_builtins(state), "name": bench.name, "dir": str(bench.dir)})
        return 0
    head = f"{painted(state.status, state.status)}  {painted(bench.id, 'bold')}"
    lines = [
        ("name", bench.name),
        ("reason", state.reason),
        ("rounds", f"{state.rounds} of at most {bench.definition.rules.repeats}"),
        ("times", f"created {words.date(state.created)}, {len(state.started)} × begun"),
        ("notes", bench.meta.notes),
        ("folder", str(bench.dir)),
    ]
    print(f"{head}\n{fields(lines)}\n\n{comparing.page(bench.comparison())}")
    return 0


def everything(record: Record) -> dict[str, Any]:
    """The summary, and every other thing that is known and not a series."""
    state = record.state
    said = [event for _, event in record.events(kinds=("notice", "saved"))]
    return {
        **record.summary(),
        **({"error": state.error} if state.error else {}),
        **{name: getattr(state, name) for name in _STATE},
        "name": record.name,
        "diagnosis": diagnose(record),
        "meta": record.meta,
        "ranks": [
            {"rank": rank.rank, "pid": rank.pid, "device": rank.device, "host": rank.host}
            | {name: getattr(rank, name) for name in ("step", "epoch", "phase", "code")}
            for rank in record.ranks()
        ],
        "config": record.config.to_dict(),
        "notices": _notices(state, said),
        "evaluations": record.evaluations(),
        "checkpoints": [event for event in said if isinstance(event, Saved)],
    }


_STATE = (
    "supervisor_pid",
    "host",
    "created",
    "started",
    "ended",
    "reason",
    "waiting_for",
    "hosts",
    "job",
    "attempts",
    "parent",
    "command",
    "plan",
    "facts",
    "provenance",
)


def page(record: Record) -> str:
    """The page for a person."""
    follower = Follower(record)
    said = follower.news()
    state, facts, now = follower.state, record.summary(), follower.snapshot()
    saved = [event for event in said if isinstance(event, Saved)]
    parts = [
        ("", _what(record, state, facts, now)),
        ("effective", fields(_effective(record.config, state))),
        ("changed from the defaults", fields(_changed(record.config))),
        ("progress", fields(_progress(state, facts, now, saved))),
        ("where the time goes", _diagnosis(diagnose(record))),
        ("ranks", _ranks(record, now)),
        ("notices", "\n".join(f"  {text}" for text in _notices(state, said))),
        ("where it comes from", fields(_provenance(state))),
        ("error", _error(record, state)),
    ]
    return "\n\n".join(
        f"{painted(title, 'bold')}\n{body}" if title else body for title, body in parts if body
    )


def _what(record: Record, state: RunState, facts: dict[str, Any], now: Snapshot) -> str:
    head = f"{painted(state.status, state.status)}  {painted(record.id, 'bold')}"
    took = facts["duration_s"]
    times = [f"created {words.date(state.created)}"]
    if took is not None:
        times.append(f"{'runs for' if state.live else 'took'} {words.duration(took)}")
    lines = [
        ("name", record.name),
        ("reason", "" if state.error else state.reason),
        ("waits for", "\n".join(state.waiting_for)),
        ("job", jobs.of_run(state, now.time)),
        ("nodes", ", ".join(state.hosts) if len(state.hosts) > 1 else ""),
        ("times", ", ".join(times)),
        ("parent", state.parent or ""),
        ("notes", record.meta.notes),
        ("folder", str(record.dir)),
    ]
    return f"{head}\n{fields(lines)}"


def _effective(config: RunConfig, state: RunState) -> list[tuple[str, str]]:
    plan = state.plan
    if plan is None:
        return []
    devices = " ".join(device.label for device in plan.devices)
    each = f"{words.things(plan.nodes, 'node')}, each with " if plan.nodes > 1 else ""
    names = {device.name for device in plan.devices if device.name}
    accumulated = f", micro-batches of {plan.micro_batch}" if config.train.accumulate > 1 else ""
    return [
        ("how", " · ".join((config.strategy, config.launcher, plan.precision))),
        ("what", f"{config.task.name}: {config.model.name} on {config.data.name}"),
        ("world", f"{words.things(plan.world_size, 'rank')} on {each}{devices}"),
        ("hardware", ", ".join(sorted(names))),
        ("batch", f"{config.train.batch_size} = {_sum(plan.batch)} per rank{accumulated}"),
        ("lr", f"{plan.lr:g}, {config.train.schedule}"),
        ("threads", f"{plan.threads} per rank"),
        ("loader workers", f"{config.data.workers} = {_sum(plan.loader_workers)}"),
        ("backend", plan.backend),
        ("seed", str(config.train.seed)),
    ]


def _sum(shares: list[int]) -> str:
    """Shares of all ranks, equal ones counted: "64 + 64", or "8 × 32" where there are many."""
    if len(shares) <= 4:
        return " + ".join(map(str, shares))
    most = max(shares)
    full = shares.count(most)
    rest = f" + {len(shares) - full} × {min(shares)}" if full < len(shares) else ""
    return f"{full} × {most}{rest}"


def _changed(config: RunConfig) -> list[tuple[str, str]]:
    plain = RunConfig(description=config.description)
    return [
        (key, f"{'unset' if ours is None else ours}")
        for key, (ours, _) in differences(config, plain).items()
    ]


def _progress(
    state: RunState, facts: dict[str, Any], now: Snapshot, saved: list[Saved]
) -> list[tuple[str, str]]:
    total = f" of {state.facts.total_steps:,}" if state.facts else ""
    best = None if now.best is now.last else now.best
    also = ", the best so far" if now.best and not best else ""
    return [
        ("steps", f"{facts['steps']:,}{total}, {words.things(facts['epochs'], 'full epoch')}"),
        ("samples", words.count(facts["samples"])),
        ("throughput", words.rate(facts["samples_per_s"]) if facts["samples_per_s"] else ""),
        ("ETA", words.duration(now.eta) if now.eta is not None else ""),
        ("last evaluation", _evaluation(now.last) + also),
        ("best evaluation", _evaluation(best)),
        ("checkpoints", _checkpoints(saved)),
        ("attempts", jobs.anew(facts["attempts"], facts["steps_again"])),
    ]


def _evaluation(event: Evaluation | None) -> str:
    if event is None:
        return ""
    metrics = {name: metric.value for name, metric in event.metrics.items()}
    figures = ending.evaluation_line({**metrics, "samples": event.samples})
    return f"{figures}, epoch {event.epoch}, step {event.step:,}"


def _checkpoints(saved: list[Saved]) -> str:
    if not saved:
        return ""
    last = saved[-1]
    return (
        f"{len(saved):,} written, the last after step {last.step:,} "
        f"({words.size(last.bytes)}, {words.duration(last.seconds)})"
    )


def _diagnosis(found: Diagnosis) -> str:
    if found.kind == "failed":
        return ""  # the page ends with the error
    return fields(
        [("in a sentence", found.sentence), ("evidence", found.evidence), ("try", found.advice)]
    )


def _ranks(record: Record, now: Snapshot) -> str:
    if not now.ranks:
        return ""
    overlaps = any(rank.shares.get("overlap") for rank in now.ranks)
    columns = [
        Column("rank", right=True),
        Column("device"),
        Column("host", spare=3),
        Column("pid", right=True, spare=2),
        Column("doing"),
        Column("step", right=True),
        Column("samples/s", right=True),
        *(Column(name, right=True, spare=1) for name in (*PHASES, OTHER)),
        *([Column("overlap", right=True, spare=1)] if overlaps else []),
    ]
    rows = []
    for rank in now.ranks:
        info = rank.info
        doing = info.phase if info.code is None else f"{info.phase}, code {info.code}"
        row = [str(info.rank), info.device, info.host, str(info.pid), doing, f"{info.step:,}"]
        row.append(words.round_rate(rank.samples_per_s))
        row += [words.percent(rank.shares.get(column.head)) for column in columns[len(row) :]]
        rows.append(row)
    return table(columns, rows, indent="  ")


def _notices(state: RunState, said: list[Any]) -> list[str]:
    planned = state.plan.notices if state.plan else []
    told = [event.text for event in said if isinstance(event, Notice)]
    return list(dict.fromkeys([*planned, *told]))


def _provenance(state: RunState) -> list[tuple[str, str]]:
    known = state.provenance
    git, host = known.get("git") or {}, known.get("host") or {}
    commit = git.get("commit", "")[:12]
    if git.get("dirty"):
        commit += " with uncommitted changes (dirty.diff)"
    versions = {**known.get("versions", {}), **(state.facts.versions if state.facts else {})}
    machine = [host.get("name", state.host), host.get("cpu", ""), host.get("system", "")]
    return [
        ("command", shlex.join(state.command)),
        ("folder", known.get("cwd", "")),
        ("git", commit),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("machine", ", ".join(filter(None, machine))),
        ("environment", "\n".join(f"{k}={v}" for k, v in known.get("environment", {}).items())),
    ]


def _error(record: Record, state: RunState) -> str:
    error = state.error
    if error is None:
        return ""
    collateral = words.ranks(error.collateral) if error.collateral else ""
    text = [f"  {painted(ending.headline(error), 'failed')}", fields([("collateral", collateral)])]
    return "\n".join([*filter(None, text), *_indented(error.traceback)])


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.strip("\n").splitlines()]
