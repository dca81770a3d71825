"""The header of a run: its name and configuration, progress, figures and diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from distrain.runners import formatting
from distrain.runners.analysis.diagnosis import Diagnosis
from distrain.runners.config.plan import describe_setup
from distrain.runners.config.schema import RunConfig
from distrain.runners.protocol.events import Evaluation, Job
from distrain.runners.records import job_status
from distrain.runners.records.snapshot import RECENT_S, Snapshot
from distrain.runners.records.stall import PROGRESS_UNKNOWN
from distrain.tui.widgets.colours import FAILED_JOB, JOB_STATES, STATUSES
from distrain.tui.widgets.text_pane import TextLines, problem_lines, wrapped

FEW = 8  # values, of which nobody needs the number
HOW_TO_LOG = 'distrain.log({"loss": loss}) in the script adds curves'
STEPS_EXPECTED = 0.1  # of report.stall_s, after which a script without steps reports none


class RunHeader(TextLines):
    """Three lines about a run, one more for a diagnosis, and one more for warnings."""

    DEFAULT_CSS = """
    RunHeader { height: 3; padding: 0 1; }
    """

    def show(
        self,
        now: Snapshot,
        config: RunConfig,
        diagnosis: Diagnosis,
        hint: str = "",
        warnings: Sequence[str] = (),
    ) -> None:
        lines = header(now, config, self.size.width - 2, hint)
        width = self.size.width - 2
        if now.stall:  # which rank, where, and what the others wait for: all of it matters
            lines[1:2] = wrapped(now.stall.describe(now.time), "yellow", width)
        elif now.state.status == "queued" and now.state.waiting_for:
            lines[1:2] = wrapped(_waiting(now), "dim", width)
        if warnings:
            lines.append(_warning(warnings, width))
        if diagnosis.kind not in ("failed", "stalled", "unknown"):
            lines += _diagnosis(diagnosis, width)
        self.styles.height = len(lines)
        self.put(lines)

    def show_problem(self, run_id: str, problem: str) -> None:
        """Show why the record cannot be read, in place of figures that no longer hold."""
        self.styles.height = 3
        self.put(problem_lines(run_id, problem))


def header(now: Snapshot, config: RunConfig, width: int, hint: str = "") -> list[Text]:
    """Return the three lines, fitted to a width by leaving out what matters least."""
    return [
        _description(now, config, width, hint),
        _progress(now, config, width),
        _logged(now, width) if config.is_script else _figures(now, width),
    ]


def _description(now: Snapshot, config: RunConfig, width: int, hint: str) -> Text:
    plan = now.state.plan
    status = now.current_status
    dot, colour = STATUSES[status]
    setup = describe_setup(config, plan)
    if plan:
        on = f" on {formatting.plural(plan.nodes, 'node')}" if plan.nodes > 1 else ""
        setup.append(formatting.plural(plan.world_size, "rank") + on)
    parts = [Text(f"{dot} {status}", f"bold {colour}")]
    if now.name:
        parts.append(Text(now.name, "bold"))
    id = Text(now.run_id, "" if now.name else "bold")
    job = now.state.job
    setup_text = Text(" · ".join(setup), "dim")
    if job is None or job_status.is_waiting(now.state):
        parts += [id, setup_text]
    else:  # the job matters more than the id of a run with a name
        scheduled = _job(job, now)
        parts += [scheduled, setup_text, id] if now.name else [id, scheduled, setup_text]
    parts.append(Text(now.state.workload(config), "dim"))
    return _fitted(parts, width, Text(hint, "dim"))


def _job(job: Job, now: Snapshot) -> Text:
    if not (now.state.live or job_status.has_ended(job)):
        return Text(job_status.describe_job_of(now.state, now.time), "dim")
    text = f"{job_status.label(job)} {job_status.state_text(job)}"
    if remaining := job_status.time_left(job, now.time):
        text += f", {remaining}"
    return Text(text, JOB_STATES.get(job.state, FAILED_JOB))


def _progress(now: Snapshot, config: RunConfig, width: int) -> Text:
    state = now.state
    if now.stall:
        text = now.stall.describe(now.time)
        return Text(text, "yellow", no_wrap=True, overflow="ellipsis")
    if state.live and state.reason:
        reason = formatting.single_line(state.reason)
        return Text(reason, "yellow", no_wrap=True, overflow="ellipsis")
    if state.error is not None and not (now.step or config.is_script):  # the card says the rest
        return Text(f"failed before its first step  {_elapsed(now)}", "red", no_wrap=True)
    shows_reason = not state.live and state.reason and state.status not in ("completed", "failed")
    if config.is_script and state.status != "queued" and not shows_reason:
        return _script_progress(now, config)
    if state.facts and now.total_steps is None and not job_status.is_waiting(state):
        return Text(f"step {now.step:,}  {_elapsed(now)}")  # of a bench
    if now.total_steps is None or now.fraction is None or job_status.is_waiting(state):
        waiting = Text(_waiting(now), "yellow" if job_status.is_waiting(state) else "dim")
        waiting.truncate(width, overflow="ellipsis")
        return waiting
    epoch = f"epoch {now.epoch:,}/{config.train.epochs:,}  " if now.epoch else "epoch –  "
    left = Text(f"{epoch if now.has_epochs else ''}step {now.step:,}/{now.total_steps:,}  ")
    if now.repeats_until:
        left.append(f"repeating up to step {now.repeats_until:,}  ", "magenta")
    if state.live:
        ending = f"  {formatting.percent(now.fraction)}  ETA {formatting.duration(now.eta)}"
    else:
        ending = f"  {formatting.percent(now.fraction)}  {_elapsed(now)}"
    room = max(width - left.cell_len - len(ending), 0)
    filled = round(now.fraction * room)
    colour = STATUSES[now.current_status][1]
    return left.append("━" * filled, colour).append("─" * (room - filled), "dim").append(ending)


def _script_progress(now: Snapshot, config: RunConfig) -> Text:
    """Return the steps and the time; "no steps" only if the script had time to report one."""
    state = now.state
    seconds = _seconds(now)
    elapsed = _elapsed(now)
    if now.step:
        return Text(f"step {now.step:,}  {elapsed}")
    none = PROGRESS_UNKNOWN if state.live else "the script reported no steps"
    is_early = state.live and seconds < config.report.stall_s * STEPS_EXPECTED
    return Text(elapsed if is_early else f"{none}  {elapsed}", "dim")


def _seconds(now: Snapshot) -> float:
    state = now.state
    return (state.ended or now.time) - (state.started or state.created)


def _elapsed(now: Snapshot) -> str:
    """Return "running for 12 s", or "duration 12 s" after the end."""
    verb = "running for" if now.state.live else "duration"
    return f"{verb} {formatting.duration(_seconds(now))}"


def _waiting(now: Snapshot) -> str:
    if now.state.job is not None and job_status.is_waiting(now.state):
        return job_status.describe(now.state.job, now.time)
    if now.state.waiting_for:
        return "; ".join(now.state.waiting_for)
    if not now.state.live:
        return formatting.single_line(now.state.reason or now.state.status)
    if now.state.status == "queued":
        return "waiting in the queue"
    phases = sorted({rank.info.phase for rank in now.ranks}) or ["starting"]
    seconds = max(now.time - (now.state.started or now.state.created), 0.0)
    elapsed = f"{seconds:.0f} s" if seconds < 60 else formatting.duration(seconds)
    details = "" if phases == ["starting"] else f" ({', '.join(phases)})"
    return f"starting ranks{details}… {elapsed}"


def _logged(now: Snapshot, width: int) -> Text:
    """Return the last values that a script has logged, its rate and its last evaluation."""
    parts = [
        Text.assemble(f"{name} ", (formatting.logged_value(value), "bold"))
        for name, value in now.logged.items()
    ]
    if parts:
        parts[0] = Text.assemble(("last: ", "dim"), parts[0])
    if now.samples_per_s is not None:
        kind = f" (last {RECENT_S:.0f} s)" if now.state.live else " (mean)"
        parts.insert(0, Text.assemble((now.throughput, "bold"), kind))
    if now.last:
        parts = [*_evaluation("reported val", now.last), *parts]
    if not parts and now.state.status == "failed":
        return Text()  # it may have failed before it could log
    if not parts:
        return Text(f"no values logged: {HOW_TO_LOG}", "dim", no_wrap=True)
    names = formatting.plural(len(now.logged_names), "name")
    note = names if len(parts) > FEW else "" if now.logged_names or now.last else HOW_TO_LOG
    return _fitted(parts, width, Text(note, "dim"))


def _figures(now: Snapshot, width: int) -> Text:
    loss = (formatting.figure(now.loss), "bold")
    if now.state.live and not now.step and not now.last:
        return Text("no figures yet", "dim")
    if now.state.live:
        parts = [Text.assemble((f"last {RECENT_S:.0f} s: ", "dim"), "train loss ", loss)]
    else:
        parts = [Text.assemble("train loss ", loss, " (mean of the last steps)")]
    if now.samples_per_s is not None:
        parts.append(Text.assemble((now.throughput, "bold"), "" if now.state.live else " (mean)"))
    if restarts := job_status.describe_restarts(now.state.attempts, now.repeated_steps):
        parts.append(Text(restarts, "yellow"))
    if now.last:
        parts += _evaluation("val", now.last)
    if now.best and now.best != now.last:
        parts += _evaluation("best checkpoint", now.best)
    return _fitted(parts, width)


def _diagnosis(found: Diagnosis, width: int) -> list[Text]:
    """Return the diagnosis and all of the advice, wrapped, and the evidence where it fits."""
    is_problem = found.kind not in ("compute", "nothing")
    lines = wrapped(found.sentence, "yellow" if is_problem else "", width)
    if found.advice:
        lines = _joined(lines, wrapped(f"advice: {found.advice}", "", width), width)
    if found.evidence:
        evidence = Text(f"({found.evidence})", "dim", no_wrap=True)
        if len(joined := _joined(lines, [evidence], width)) == len(lines):
            lines = joined
    return lines


def _joined(lines: list[Text], following: list[Text], width: int) -> list[Text]:
    """Return lines with what follows, in the last line of the first if it fits there."""
    gap = Text("  ")
    if len(following) == 1 and lines[-1].cell_len + len(gap) + following[0].cell_len <= width:
        return [*lines[:-1], Text.assemble(lines[-1], gap, following[0], no_wrap=True)]
    return [*lines, *following]


def _warning(warnings: Sequence[str], width: int) -> Text:
    """Return the first warning, and how many there are after it."""
    others = f" (+{len(warnings) - 1} more)" if warnings[1:] else ""
    line = Text(f"▲ {formatting.single_line(warnings[0])}", "yellow", no_wrap=True)
    line.truncate(width - len(others), overflow="ellipsis")
    return line.append(others, "dim")


def _evaluation(title: str, found: Evaluation) -> list[Text]:
    """Return the metrics, shares of correct answers first: "val (epoch 30): top1 98.2 %"."""
    names = formatting.sort_metrics(found.metrics)
    metrics = [Text(formatting.metric(name, found.metrics[name].value)) for name in names]
    where = f"epoch {found.epoch:,}" if found.epoch else f"step {found.step:,}"
    first = Text.assemble((f"{title} ({where}):", "dim"), " ", *metrics[:1])
    return [first, *metrics[1:]]


def _fitted(parts: list[Text], width: int, right: Text | None = None) -> Text:
    """Join as many of the first parts as fit, and put `right` at the right edge."""
    right = right if right is not None else Text()
    room = width - right.cell_len
    line = Text(no_wrap=True)
    for part in parts:
        gap = "  " if line else ""
        if line.cell_len + len(gap) + part.cell_len > room and line:
            break
        line.append(gap).append_text(part)
    if right and line.cell_len < room:
        line.append(" " * (room - line.cell_len)).append_text(right)
    return line
