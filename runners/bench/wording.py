"""How far a bench is, in words: the same in the command line and in the app."""

from __future__ import annotations

from runners import words
from runners.bench.definition import Definition, Rules
from runners.bench.duration import Left, left
from runners.bench.state import BenchState


def at(definition: Definition, state: BenchState) -> str:
    """Which round and run is under way: "round 3 of 7–20, run 1 of 2: ddp"; empty where none is."""
    now = state.now
    if now is None:
        return ""
    run = now.order.index(now.contestant) + 1
    of = f"{rounds(definition.rules, '–')}, run {run} of {len(now.order)}"
    return f"round {now.round} of {of}: {now.contestant}"


def to_go(expected: Left) -> str:
    """How much is left, as far as that can be told."""
    likely, most = words.duration(expected.likely), words.duration(expected.most)
    return f"about {likely} left" + (f", at most {most}" if most != likely else "")


def outlook(definition: Definition) -> str:
    """What a bench that has not begun will do, and for how long."""
    rules = definition.rules
    expected = left(definition, BenchState(bench_id="", created=0.0))
    least, most = words.duration(expected.least), words.duration(expected.most)
    return (
        f"{rounds(rules, ' to ')} rounds of {words.things(len(definition.configs), 'run')}, until "
        f"each ratio is known within ±{100 * rules.precision:g} %: about "
        + (least if least == most else f"{least} to {most}")
    )


def rounds(rules: Rules, between: str) -> str:
    """At least and at most."""
    least, most = rules.least, rules.repeats
    return str(most) if least == most else f"{least}{between}{most}"
