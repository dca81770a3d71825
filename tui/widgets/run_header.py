"""The head of a run: what it is, how far it is, how it does, and what it is bound by."""

from __future__ import annotations

from rich.text import Text

from runners import jobs, words
from runners.config import RunConfig
from runners.diagnosis import Diagnosis
from runners.events import Evaluation, Job
from runners.snapshot import Snapshot
from tui.widgets.inks import STATUSES
from tui.widgets.text_pane import TextLines


class RunHeader(TextLines):
    """Three lines, and one more once there is a diagnosis; `show` gives it a moment of the run."""

    DEFAULT_CSS = """
    RunHeader { height: 3; padding: 0 1; &.-diagnosed { height: 4; } }
    """

    def show(self, now: Snapshot, config: RunConfig, diagnosis: Diagnosis, hint: str = "") -> None:
        lines = head(now, config, self.size.width - 2, hint)
        known = diagnosis.kind not in ("failed", "unknown")
        self.set_class(known, "-diagnosed")
        if known:
            lines.append(_diagnosis(diagnosis, self.size.width - 2))
        self.put(lines)


def head(now: Snapshot, config: RunConfig, width: int, hint: str = "") -> list[Text]:
    """The three lines, fitted to a width by leaving out what matters least."""
    return [_what(now, config, width, hint), _progress(now, config, width), _figures(now, width)]


def _what(now: Snapshot, config: RunConfig, width: int, hint: str) -> Text:
    plan = now.state.plan
    dot, colour = STATUSES[now.state.status]
    how: list[str] = [
        config.strategy,
        config.launcher,
        plan.precision if plan else config.precision,
    ]
    if plan:
        on = f" on {words.things(plan.nodes, 'node')}" if plan.nodes > 1 else ""
        how.append(words.things(plan.world_size, "rank") + on)
    parts = [Text(f"{dot} {now.state.status}", f"bold {colour}")]
    if now.name:
        parts.append(Text(now.name, "bold"))
    id = Text(now.run_id, "" if now.name else "bold")
    job, done = now.state.job, Text(" · ".join(how), "dim")
    if job is None or jobs.waits(now.state):
        parts += [id, done]
    else:  # which matters more than an id beside a name
        scheduled = _job(job, now)
        parts += [scheduled, done, id] if now.name else [id, scheduled, done]
    parts.append(Text(f"{config.model.name} on {config.data.name}", "dim"))
    return _fitted(parts, width, Text(hint, "dim"))


def _job(job: Job, now: Snapshot) -> Text:
    if not (now.state.live or jobs.over(job)):
        return Text(jobs.of_run(now.state, now.time), "dim")
    told = ", ".join(
        filter(None, (f"{jobs.named(job)} {jobs.word(job)}", jobs.left(job, now.time)))
    )
    return Text(told, jobs.COLOURS.get(job.state, "red"))


def _progress(now: Snapshot, config: RunConfig, width: int) -> Text:
    state = now.state
    if (state.live and state.reason) or state.error is not None:
        colour = "yellow" if state.live else "red"
        return Text(words.line(state.reason), colour, no_wrap=True, overflow="ellipsis")
    if now.total_steps is None or now.fraction is None or jobs.waits(state):
        waiting = Text(_waiting(now), "yellow" if jobs.waits(state) else "dim")
        waiting.truncate(width, overflow="ellipsis")
        return waiting
    begun = f"epoch {now.epoch:,}/{config.train.epochs:,}" if now.epoch else "epoch –"
    left = Text(f"{begun}  step {now.step:,}/{now.total_steps:,}  ")
    if state.live:
        ending = f"  {words.percent(now.fraction)}  ETA {words.duration(now.eta)}"
    else:
        took = (state.ended or now.time) - (state.started or state.created)
        ending = f"  {words.percent(now.fraction)}  took {words.duration(took)}"
    room = max(width - left.cell_len - len(ending), 0)
    filled = round(now.fraction * room)
    colour = STATUSES[state.status][1]
    return left.append("━" * filled, colour).append("─" * (room - filled), "dim").append(ending)


def _waiting(now: Snapshot) -> str:
    if now.state.job is not None and jobs.waits(now.state):
        return jobs.told(now.state.job, now.time)
    if now.state.waiting_for:
        return "; ".join(now.state.waiting_for)
    if not now.state.live:
        return words.line(now.state.reason or now.state.status)
    if now.state.status == "queued":
        return "in the queue"
    doing = sorted({rank.info.phase for rank in now.ranks}) or ["starting"]
    since = words.duration(now.time - (now.state.started or now.state.created))
    return f"the ranks are {' and '.join(doing)}, {since} after the start"


def _figures(now: Snapshot, width: int) -> Text:
    parts = [Text.assemble("loss ", (words.figure(now.loss), "bold"))]
    if now.samples_per_s is not None:
        parts.append(Text(words.rate(now.samples_per_s), "bold"))
    if anew := jobs.anew(now.state.attempts, now.done_again):
        parts.append(Text(anew, "yellow"))
    if now.last:
        parts += _evaluation("evaluated:", now.last)
    if now.best and now.best is not now.last:
        parts += _evaluation("best:", now.best)
    return _fitted(parts, width)


def _diagnosis(found: Diagnosis, width: int) -> Text:
    """The sentence, and as much of what to try and of the evidence as there is room for."""
    calm = found.kind in ("compute", "nothing")
    parts = [Text(found.sentence, "" if calm else "yellow")]
    if found.advice:
        parts.append(Text.assemble(("try: ", "dim"), found.advice))
    if found.evidence:
        parts.append(Text(f"({found.evidence})", "dim"))
    line = Text("  ").join(parts)
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def _evaluation(title: str, found: Evaluation) -> list[Text]:
    """The metrics, shares of right answers first."""
    names = words.shares_first(found.metrics)
    told = [Text(words.metric(name, found.metrics[name].value)) for name in names]
    first = Text.assemble((title, "dim"), " ", *told[:1])
    return [first, *told[1:], Text(f"at epoch {found.epoch:,}", "dim")]


def _fitted(parts: list[Text], width: int, right: Text | None = None) -> Text:
    """As many parts as there is room for, the first ones first, and one at the right edge."""
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
