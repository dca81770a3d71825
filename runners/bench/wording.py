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
    of = f"{rounds(definition.rules, '–')}, run {now.run} of {len(now.order)}"
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
    what = "each ratio" if len(definition.configs) > 1 else "its rate"
    until = f", until {what} is known within ±{100 * rules.precision:g} %"
    return (
        f"{rounds(rules, ' to ')} rounds of {words.things(len(definition.configs), 'run')}"
        + until * (rules.least < rules.repeats)
        + ": about "
        + (least if least == most else f"{least} to {most}")
    )


def command(definition: Definition) -> list[str]:
    """The same in a shell, for contestants that are named as `contestants` names them."""
    rules, usual = definition.rules, Rules()
    given = ["distrain", "bench", *definition.configs]
    for name in ("repeats", "seconds", "precision", "seed"):
        value = getattr(rules, name)
        if value != getattr(usual, name):
            given += [f"--{name}", str(value)]
    if rules.baseline not in ("", next(iter(definition.configs))):
        given += ["--baseline", rules.baseline]
    if target := definition.target:
        given += ["--target", f"{target.metric}={target.value}"]
    return given + ["--unequal"] * rules.unequal


def rounds(rules: Rules, between: str) -> str:
    """At least and at most."""
    least, most = rules.least, rules.repeats
    return str(most) if least == most else f"{least}{between}{most}"
