"""Everything about one run: the page of `show`, and the object of `show --json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from textwrap import indent
from typing import Any

from msgspec import structs

from distrain.runners import formatting
from distrain.runners.analysis.diagnosis import Diagnosis, diagnose
from distrain.runners.cli import run_result
from distrain.runners.cli.terminal import TextColumn, format_fields, format_table, paint
from distrain.runners.config.plan import describe_setup
from distrain.runners.config.schema import RunConfig, differences
from distrain.runners.protocol.events import OTHER, PHASES, Evaluation, Event, Notice, Saved
from distrain.runners.records import job_status
from distrain.runners.records.database import DATABASE
from distrain.runners.records.reader import Record
from distrain.runners.records.snapshot import Follower, RankNow, Snapshot
from distrain.runners.records.stacks import read_last_stacks
from distrain.runners.records.stall import COLUMNS, PROGRESS_UNKNOWN
from distrain.runners.records.state import RunState
from distrain.runners.records.timeseries.series import PROCS

_STATE_KEYS = (
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
    "group",
    "command",
    "plan",
    "facts",
    "provenance",
)
_RANK_KEYS = ("rank", "pid", "device", "host", "step", "epoch", "phase", "code")
MAX_SHARES = 4  # that are written out: "64 + 64 + 64 + 64"
MOST_NOTICES = 100  # on the page


def collect_data(record: Record) -> dict[str, Any]:
    """Return the summary, and everything else that is known except time series."""
    with record.one_moment():
        return _collect_data(record)


def _collect_data(record: Record) -> dict[str, Any]:
    state = record.state  # once: all that is shown belongs to one moment
    meta = record.meta
    events = [event for _, event in record.events(kinds=("notice", "saved"))]
    data = record.summary(state)
    if state.error:
        data["error"] = state.error
    data |= {key: getattr(state, key) for key in _STATE_KEYS}
    return data | {
        "stall": stall.as_json(time.time()) if (stall := state.current_stall) else None,
        "name": meta.name,
        "diagnosis": diagnose(record, state=state),
        "meta": meta,
        "ranks": [{key: getattr(rank, key) for key in _RANK_KEYS} for rank in record.ranks()],
        "config": record.config.to_dict(),
        "notices": _collect_notices(record, state, events),
        "evaluations": record.evaluations(),
        "checkpoints": [event for event in events if isinstance(event, Saved)],
    }


def format_page(record: Record) -> str:
    """Return the page for a person."""
    with record.one_moment():
        return _format_page(record)


def _format_page(record: Record) -> str:
    follower = Follower(record)
    events = follower.new_events()
    state = follower.state
    summary = record.summary(state)
    snapshot = follower.snapshot()
    checkpoints = [event for event in events if isinstance(event, Saved)]
    sections = [
        ("", _format_head(record, state, summary, snapshot)),
        ("effective settings", format_fields(_settings(record.config, state))),
        ("changed from the defaults", format_fields(_changed_settings(record.config))),
        (
            "progress",
            format_fields(
                [*_progress(state, summary, snapshot, checkpoints), *_script_figures(record)]
            ),
        ),
        ("logged", format_fields(_logged(snapshot))),
        ("settings of the script", format_fields(_script_settings(record))),
        ("sources", format_fields(_sources(summary, state))),
        ("stall", _format_stall(record, state, snapshot.time)),
        ("diagnosis", _format_diagnosis(diagnose(record, state=state))),
        ("ranks", _format_ranks(snapshot.ranks, record.config.is_script)),
        ("notices", _format_notices(_collect_notices(record, state, events))),
        ("provenance", format_fields(_provenance(state))),
        ("error", _format_error(state)),
    ]
    texts = []
    for title, body in sections:
        if body:
            texts.append(f"{paint(title, 'bold')}\n{body}" if title else body)
    return "\n\n".join(texts)


def _format_head(
    record: Record, state: RunState, summary: dict[str, Any], snapshot: Snapshot
) -> str:
    times = f"created {formatting.date(state.created)}"
    if summary["duration_s"] is not None:
        verb = "running for" if state.live else "duration"
        times += f", {verb} {formatting.duration(summary['duration_s'])}"
    fields = [
        ("name", record.name),
        ("reason", "" if state.error else state.reason),
        ("stalled", stall.describe(snapshot.time) if (stall := state.current_stall) else ""),
        ("waiting for", "\n".join(state.waiting_for)),
        ("job", job_status.describe_job_of(state, snapshot.time)),
        ("nodes", ", ".join(state.hosts) if len(state.hosts) > 1 else ""),
        ("times", times),
        ("parent", state.parent or ""),
        ("group", state.group),
        ("notes", record.meta.notes),
        ("folder", str(record.dir)),
    ]
    heading = f"{paint(state.current_status, state.current_status)}  {paint(record.id, 'bold')}"
    return f"{heading}\n{format_fields(fields)}"


def _settings(config: RunConfig, state: RunState) -> list[tuple[str, str]]:
    plan = state.plan
    if plan is None:
        return []
    devices = " ".join(device.label for device in plan.devices)
    if plan.nodes > 1:
        devices = f"{formatting.plural(plan.nodes, 'node')}, each with {devices}"
    hardware = sorted({device.name for device in plan.devices if device.name})
    task = ("task", ": ".join(dict.fromkeys([config.task.name, state.workload(config)])))
    common = [
        ("setup", " · ".join(describe_setup(config, plan))),
        ("script", config.workload) if config.is_script else task,
        ("ranks", f"{formatting.plural(plan.world_size, 'rank')} on {devices}"),
        ("hardware", ", ".join(hardware)),
    ]
    if config.is_script:
        return common
    batch = f"{config.train.batch_size} = {_format_shares(plan.batch)} per rank"
    if config.train.accumulate > 1:
        batch += f", micro-batches of {plan.micro_batch}"
    return [
        *common,
        ("batch", batch),
        ("lr", state.learning_rate(config)),
        ("threads", f"{plan.threads} per rank"),
        ("loader workers", f"{config.data.workers} = {_format_shares(plan.loader_workers)}"),
        ("backend", plan.backend),
        ("seed", str(config.train.seed)),
    ]


def _format_shares(shares: Sequence[int]) -> str:
    """Return the shares of all ranks: "64 + 64", or "8 × 32" where there are many."""
    if len(shares) <= MAX_SHARES:
        return " + ".join(map(str, shares))
    largest = max(shares)
    count = shares.count(largest)
    text = f"{count} × {largest}"
    if count < len(shares):
        text += f" + {len(shares) - count} × {min(shares)}"
    return text


def _changed_settings(config: RunConfig) -> list[tuple[str, str]]:
    defaults = RunConfig(description=config.description)
    if config.is_script:
        defaults = structs.replace(defaults, strategy=config.strategy, launcher=config.launcher)
    return [
        (formatting.printable(key), "unset" if value is None else formatting.printable(f"{value}"))
        for key, (value, _) in differences(config, defaults).items()
    ]


def _progress(
    state: RunState, summary: dict[str, Any], snapshot: Snapshot, checkpoints: list[Saved]
) -> list[tuple[str, str]]:
    steps = ""
    if summary["steps"] is not None:
        steps = f"{summary['steps']:,}"
    elif "script" in summary and state.status == "running":
        steps = PROGRESS_UNKNOWN
    if state.facts and state.facts.last_step is not None:
        steps += f" of {state.facts.last_step:,}"
    if summary["epochs"] is not None:
        steps += f", {formatting.plural(summary['epochs'], 'full epoch')}"
    last = _format_evaluation(snapshot.last)
    best = ""
    if last and "script" in summary:
        last += ", reported by the script"
    if snapshot.best:
        if snapshot.best == snapshot.last:
            last += ", of the best checkpoint"
        else:
            best = _format_evaluation(snapshot.best)
    restarts = job_status.describe_restarts(summary["attempts"], summary["steps_again"])
    return [
        ("steps", steps),
        ("samples", "" if summary["samples"] is None else formatting.count(summary["samples"])),
        ("throughput", run_result.mean_throughput(summary)),
        ("MFU", formatting.percent(summary.get("mfu"), 1) if "mfu" in summary else ""),
        ("ETA", formatting.duration(snapshot.eta) if snapshot.eta is not None else ""),
        ("last evaluation", last),
        ("best checkpoint", best),
        ("checkpoints", _format_checkpoints(checkpoints)),
        ("attempts", restarts),
    ]


def _script_figures(record: Record) -> list[tuple[str, str]]:
    """Return the figures of a script that a preset's run shows elsewhere."""
    if not record.config.is_script:
        return []
    rates = (total["lr"] for _, total in sorted(record.totals().items()))
    lr = next((rate for rate in rates if rate is not None), None)
    sizes = [total["rss_max"] for total in record.totals(PROCS).values() if total["rss_max"]]
    owner = "peak of one rank" if len(sizes) > 1 else "peak"
    return [
        ("lr", "" if lr is None else f"{lr:g} (last)"),
        ("memory", f"{formatting.size(max(sizes))} ({owner})" if sizes else ""),
    ]


def _logged(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the last values that were logged, of the first names if there are many."""
    fields = [(name, formatting.logged_value(value)) for name, value in snapshot.logged.items()]
    hidden = len(snapshot.logged_names) - len(fields)
    if hidden > 0:
        fields.append(("…", f"{formatting.plural(hidden, 'more name')} (see --json)"))
    return fields


def _script_settings(record: Record) -> list[tuple[str, str]]:
    if not record.config.is_script:
        return []
    return [(key, str(value)) for key, value in record.script_settings().config.items()]


def _sources(summary: dict[str, Any], state: RunState) -> list[tuple[str, str]]:
    """Return where the figures of a script come from, and what is not promised for a script."""
    if "script" not in summary:
        return []
    resume = "starts the script again, which may load its own checkpoint"
    if state.plan and state.plan.observed:
        resume = "not possible: distrain did not start the program"
    return [
        *summary.get("sources", {}).items(),
        ("verify", "not possible: distrain does not know what the script computes"),
        ("resume", resume),
    ]


def _format_evaluation(event: Evaluation | None) -> str:
    if event is None:
        return ""
    metrics = {name: metric.value for name, metric in event.metrics.items()}
    figures = run_result.format_evaluation({**metrics, "samples": event.samples})
    return f"{figures}, {event.position}"


def _format_checkpoints(checkpoints: list[Saved]) -> str:
    if not checkpoints:
        return ""
    last = checkpoints[-1]
    return (
        f"{len(checkpoints):,} written, the last after step {last.step:,} "
        f"({formatting.size(last.bytes)}, {formatting.duration(last.seconds)})"
    )


def _format_diagnosis(diagnosis: Diagnosis) -> str:
    if diagnosis.kind == "failed":
        return ""  # the page ends with the error
    fields = [
        ("summary", diagnosis.sentence),
        ("evidence", diagnosis.evidence),
        ("advice", diagnosis.advice),
    ]
    return format_fields(fields)


def _format_stall(record: Record, state: RunState, now: float) -> str:
    """Return where each rank is, and the calls of all threads as they were at the beginning."""
    stall = state.current_stall
    if stall is None:
        return ""
    columns = [TextColumn(name, right=name == "rank") for name in COLUMNS]
    table = format_table(columns, stall.rows(now), indent="  ")
    stacks = indent(read_last_stacks(record.dir), "  ").rstrip()
    return f"{table}\n\n{stacks}" if stacks else table


def _format_ranks(ranks: Sequence[RankNow], is_script: bool) -> str:
    if not ranks:
        return ""
    columns = [
        TextColumn("rank", right=True),
        TextColumn("device"),
        TextColumn("host", drop_order=3),
        TextColumn("pid", right=True, drop_order=2),
        TextColumn("phase"),
        TextColumn("step", right=True),
        TextColumn("samples/s", right=True),
    ]
    phases = [*PHASES, OTHER]
    if any(rank.shares.get("overlap") for rank in ranks):
        phases.append("overlap")
    if is_script:
        phases = [name for name in phases if any(name in rank.shares for rank in ranks)]
    for phase in phases:
        title = "comm wait" if phase == "comm" else phase
        columns.append(TextColumn(title, right=True, drop_order=1))
    rows = []
    for rank in ranks:
        info = rank.info
        phase = info.phase if info.code is None else f"{info.phase}, exit code {info.code}"
        rows.append(
            [
                str(info.rank),
                info.device,
                info.host,
                str(info.pid),
                phase,
                f"{info.step:,}",
                formatting.round_rate(rank.samples_per_s),
                *(formatting.percent(rank.shares.get(name)) for name in phases),
            ]
        )
    return format_table(columns, rows, indent="  ")


def _collect_notices(record: Record, state: RunState, events: Sequence[Event]) -> list[str]:
    planned = state.plan.notices if state.plan else []
    if state.summary and not record.has_measurements:
        planned = [*planned, f"its {DATABASE} is missing: only the summary is left"]
    reported = [event.text for event in events if isinstance(event, Notice)]
    return list(dict.fromkeys([*planned, *reported]))


def _format_notices(notices: Sequence[str]) -> str:
    lines = [f"  {text}" for text in notices[-MOST_NOTICES:]]
    if earlier := len(notices) - len(lines):
        lines.insert(0, f"  and {formatting.plural(earlier, 'earlier one')}: see --json")
    return "\n".join(lines)


def _provenance(state: RunState) -> list[tuple[str, str]]:
    known = state.provenance
    git = known.get("git") or {}
    host = known.get("host") or {}
    commit = git.get("commit", "")[:12]
    if git.get("dirty"):
        commit += " with uncommitted changes (dirty.diff)"
    commit = ", ".join(filter(None, [commit, git.get("problem", "")]))
    versions = dict(known.get("versions", {}))
    if state.facts:
        versions |= state.facts.versions
    machine = [host.get("name", state.host), host.get("cpu", ""), host.get("system", "")]
    environment = known.get("environment", {})
    return [
        ("command", formatting.shell_words(state.command)),
        ("folder", known.get("cwd", "")),
        ("git", commit),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("machine", ", ".join(text for text in machine if text)),
        ("environment", "\n".join(f"{name}={value}" for name, value in environment.items())),
    ]


def _format_error(state: RunState) -> str:
    error = state.error
    if error is None:
        return ""
    lines = [f"  {paint(run_result.describe_error(error), 'failed')}"]
    if error.secondary:
        lines.append(format_fields([("taken down with it", formatting.ranks(error.secondary))]))
    lines += [f"    {line}" for line in error.traceback.strip("\n").splitlines()]
    return "\n".join(lines)
