"""How a run ended, for a person: a few lines on stdout, and what went wrong on stderr."""

from __future__ import annotations

import sys
from typing import Any

from runners import words
from runners.cli.text import painted, say
from runners.record import Record
from runners.state import RunError, RunState

CODES = {"completed": 0, "failed": 1, "stopped": 130}


def exit_code(state: RunState) -> int:
    """0 completed, 1 failed, 2 failed by its configuration, 130 stopped; 0 while it is live."""
    if state.error is not None and state.error.usage:
        return 2
    return CODES.get(state.status, 0)


def in_a_few_lines(record: Record, facts: dict[str, Any]) -> str:
    """What `run` and `watch` leave on stdout; `facts` is the record's summary."""
    status, seconds = facts["status"], facts["duration_s"]
    took = "" if seconds is None else f"  in {words.duration(seconds)}"
    if status == "failed" and seconds is None:
        took = ", never started"
    reason = f": {record.state.reason}" if status == "stopped" else ""
    lines = [
        f"{painted(status, status)}  {painted(facts['run_id'], 'bold')}{took}{reason}",
        f"  {combination(facts)}",
        "  " + " · ".join(_work(facts)),
    ]
    if evaluation := facts.get("eval"):
        lines.append(f"  {evaluation_line(evaluation)}")
    lines.append(f"  {painted(str(record.dir), 'dim')}")
    return "\n".join(lines)


def combination(facts: dict[str, Any]) -> str:
    """ "ddp · torchrun · fp32 · 2 ranks on cpu:0 cpu:1"."""
    parts = [facts["strategy"], facts["launcher"], facts["precision"]]
    if facts["world_size"]:
        devices = facts["devices"]
        named = " ".join(devices[:8]) + (" …" if len(devices) > 8 else "")
        nodes = facts.get("nodes") or 1  # what an older version summed up knows of one
        each = f"{words.things(nodes, 'node')} with " if nodes > 1 else ""
        parts.append(f"{words.things(facts['world_size'], 'rank')} on {each}{named}")
    return " · ".join(parts)


def evaluation_line(evaluation: dict[str, Any]) -> str:
    """ "top1 96.39 %  top5 99.72 %  loss 0.1345  of 360 samples", shares of right answers first."""
    figures = [words.metric(name, evaluation[name]) for name in words.shares_first(evaluation)]
    return "  ".join([*figures, f"of {words.things(evaluation['samples'], 'sample')}"])


def explain_failure(record: Record, state: RunState) -> None:
    """On stderr: who failed first and how, its log, and who only died of it."""
    error = state.error
    if error is None:
        return
    if error.usage:
        say(f"distrain: {error.message}")
        return
    say(f"distrain: {painted(headline(error), 'failed', sys.stderr)}")
    if error.traceback:
        say("\n" + error.traceback.strip("\n") + "\n")
    if error.collateral:
        say(f"collateral: {words.ranks(error.collateral)} ended because of it")
    path = record.dir / "logs" / f"{error.log}.log"
    if path.exists():
        say(f"log: {path}")


def headline(error: RunError) -> str:
    """ "rank 1 failed after step 40: ValueError: …"; words of ours stand without a type."""
    if error.rank is None:
        return error.message
    when = f" after step {error.step}" if error.step else ""
    if error.traceback:
        return f"{error.who} failed{when}: {error.type}: {error.message}"
    return f"{error.who}: {error.message}"


def _work(facts: dict[str, Any]) -> list[str]:
    parts = [
        words.things(facts["epochs"], "epoch"),
        words.things(facts["steps"], "step"),
        words.things(facts["samples"], "sample"),
    ]
    if facts["samples_per_s"]:
        parts.append(words.rate(facts["samples_per_s"]))
    return parts
