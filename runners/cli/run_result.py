"""How a run ended: a few lines on stdout, and a failure on stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from distrain.runners import formatting
from distrain.runners.cli.terminal import paint, print_message
from distrain.runners.protocol.events import SAMPLE
from distrain.runners.records.logs import log_path, read_end
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunError, RunState

EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 130}
MAX_DEVICES = 8  # named in a line
PRINTED_BYTES = 1 << 16  # of a script's output, which `watch` prints too


def exit_code(state: RunState) -> int:
    """Return 0 for completed or live, 1 failed, 2 failed by its configuration, 130 stopped."""
    if state.error is not None and state.error.usage:
        return 2
    return EXIT_CODES.get(state.status, 0)


def format_result(record: Record, summary: dict[str, Any]) -> str:
    """Return what `run` and `watch` print at the end; `summary` is that of the record."""
    status = summary["status"]
    seconds = summary["duration_s"]
    duration = ""
    if seconds is not None:
        duration = f"  in {formatting.duration(seconds)}"
    elif status == "failed":
        duration = ", never started"
    reason = f": {record.state.reason}" if status == "stopped" else ""
    lines = [
        f"{paint(status, status)}  {paint(summary['run_id'], 'bold')}{duration}{reason}",
        f"  {format_setup(summary)}",
        f"  {summary.get('script') or ' · '.join(_format_work(summary))}",
    ]
    if summary.get("script") and summary["steps"] is not None:
        lines.append(f"  {' · '.join(_format_work(summary))}")
    if summary.get("eval"):
        reported = ", reported by the script" if "script" in summary else ""
        lines.append(f"  {format_evaluation(summary['eval'])}{reported}")
    lines.append(f"  {paint(str(record.dir), 'dim')}")
    return "\n".join(lines)


def format_setup(summary: dict[str, Any]) -> str:
    """Return "ddp · torchrun · fp32 · 2 ranks on cpu:0 cpu:1"."""
    parts = [summary["strategy"], summary["launcher"]]
    if summary["precision"]:
        parts.append(summary["precision"])
    if summary["world_size"]:
        devices = " ".join(summary["devices"][:MAX_DEVICES])
        if len(summary["devices"]) > MAX_DEVICES:
            devices += " …"
        nodes = summary.get("nodes") or 1  # summaries of older versions have no nodes
        if nodes > 1:
            devices = f"{formatting.plural(nodes, 'node')} with {devices}"
        parts.append(f"{formatting.plural(summary['world_size'], 'rank')} on {devices}")
    return " · ".join(parts)


def format_evaluation(evaluation: dict[str, Any]) -> str:
    """Return "top1 96.39 %  top5 99.72 %  loss 0.1345  of 360 samples"."""
    metrics = [
        formatting.metric(name, evaluation[name]) for name in formatting.sort_metrics(evaluation)
    ]
    return "  ".join([*metrics, f"of {formatting.plural(evaluation['samples'], 'sample')}"])


def print_failure(record: Record, state: RunState) -> None:
    """Print which rank failed first and how, its log, and the ranks that ended because of it."""
    error = state.error
    if error is None:
        return
    if error.usage:
        where = f"{error.origin}: " if error.host else ""  # else it is the same for all ranks
        print_message(f"distrain: {where}{error.message}")
        return
    print_message(f"distrain: {paint(describe_error(error), 'failed', sys.stderr)}")
    path = log_path(record.dir, error.log_name)
    if error.traceback and not _was_printed(record, error.traceback, path):
        print_message("\n" + error.traceback.strip("\n") + "\n")
    if error.secondary:
        print_message(f"taken down with it: {formatting.ranks(error.secondary)}")
    if path.exists():
        print_message(f"log: {path}")


def _was_printed(record: Record, traceback: str, log: Path) -> bool:
    """Return whether the traceback is at the end of a script's output, which was printed.

    The output of several ranks is mixed, so that theirs is hard to find there.
    """
    plan = record.state.plan
    if not (record.config.is_script and plan and plan.world_size == 1):
        return False
    try:
        output = read_end(log, PRINTED_BYTES)
    except OSError:
        return False
    return traceback.strip() in output.decode(errors="replace")


def describe_error(error: RunError) -> str:
    """Return "rank 1 failed after step 40: ValueError: …", or the message of an error of distrain
    itself without its type.

    Of an exception the first line is enough: all of it is at the end of the traceback.
    """
    if error.rank is None:
        return error.message
    when = f" after step {error.step:,}" if error.step else ""
    if error.traceback:
        message = formatting.single_line(error.message.strip().partition("\n")[0])
        kind = "" if message == error.type else f"{error.type}: "  # as of a KeyboardInterrupt
        return f"{error.origin} failed{when}: {kind}{message}"
    return f"{error.origin}: {error.message}"


def _format_work(summary: dict[str, Any]) -> list[str]:
    parts = [
        formatting.plural(summary[f"{noun}s"], noun)
        for noun in ("epoch", "step", "sample")
        if summary[f"{noun}s"] is not None
    ]
    if rate := mean_throughput(summary):
        parts.append(rate)
    return parts


def mean_throughput(summary: dict[str, Any]) -> str:
    """Return "51,200 tokens/s (mean)", in the unit of the task; empty if it is unknown."""
    rate = summary.get("items_per_s") or summary["samples_per_s"]
    unit = f"{summary.get('item', SAMPLE)}s/s"
    return f"{formatting.rate(rate, unit)} (mean)" if rate else ""
