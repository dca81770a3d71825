"""`compare`: runs, or a bench, beside each other, for a terminal, a pull request or a browser."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from textwrap import fill

import msgspec

from runners import finding, words
from runners.bench import Bench
from runners.cli.text import Column, aligned, fields, painted, say, table
from runners.comparison import Comparison, Line, of_runs, verdicts
from runners.comparison import table as tables
from runners.comparison.curves import with_curves
from runners.comparison.drawing import is_wide
from runners.comparison.markdown import markdown
from runners.errors import ConfigError, DistrainError

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32  # of a curve


def compare(arguments: Namespace) -> int:
    """Print the comparison, or write it to --out; a report always goes to a file."""
    comparison = _comparison(arguments)
    form = "json" if arguments.json else arguments.format
    show(comparison, form, arguments.out)
    return 0


def show(comparison: Comparison, form: str, out: str | None) -> None:
    """In one of the formats, to stdout or a file; raises DistrainError where it refuses."""
    if form == "html" and out is None:
        out = f"compare-{time.strftime('%Y%m%d-%H%M%S')}.html"
    text = _text(comparison, form)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        Path(out).write_text(text, "utf-8")
    except OSError as error:
        raise DistrainError(f"cannot write to {out}: {error.strerror}") from None
    say(f"written to {out}")


def _comparison(arguments: Namespace) -> Comparison:
    if whole := _stored(arguments.runs) or _benched(arguments.runs, arguments.runs_dir):
        if arguments.baseline not in (None, whole.baseline):
            raise ConfigError(f"its baseline is {whole.baseline}, which is measured and stays")
        return whole
    records = [finding.find_run(wanted, arguments.runs_dir).record for wanted in arguments.runs]
    return of_runs.compare(records, arguments.baseline)


def _benched(wanted: Sequence[str], runs_dir: str | None) -> Comparison | None:
    """What a bench has come to, where it is the only argument"""
    if len(wanted) == 1:
        found = finding.find(wanted[0], runs_dir)
        return with_curves(found.comparison()) if isinstance(found, Bench) else None
    return None


def _stored(wanted: Sequence[str]) -> Comparison | None:
    """What `--format json` once wrote, where the only argument is such a file."""
    path = Path(wanted[0])
    if len(wanted) > 1 or path.suffix != ".json":
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Comparison)
    except OSError as error:
        raise DistrainError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise DistrainError(f"{path} is no comparison: {error}") from None
    if found.baseline not in {each.name for each in found.contestants}:
        raise DistrainError(f"{path} is no comparison: its baseline is no contestant")
    return found


def _text(comparison: Comparison, form: str) -> str:
    if form == "html":
        from runners.comparison.report import report  # what draws it is only needed here

        return report(comparison)
    if form == "md":
        return markdown(comparison)
    if form == "json":
        return json(comparison)
    return page(comparison) + "\n"


def json(comparison: Comparison) -> str:
    """The whole object, with `unequal` as the sentence that calls it so."""
    plain = {"unequal": verdicts.unequal(comparison), **msgspec.to_builtins(comparison)}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


# --- on a terminal --------------------------------------------------------------------------------


def page(comparison: Comparison) -> str:
    """The page for a person."""
    heads, rows = tables.table(comparison)
    columns = [Column(head.name, head.right, head.spare) for head in heads]
    names = [each.name for each in comparison.contestants]
    said = [f"{each.name}: {each.diagnosis}" for each in comparison.contestants if each.diagnosis]
    parts = [
        painted(verdicts.unequal(comparison), "warning"),
        painted(comparison.title, "bold"),
        "\n".join(f"  {words.line(text)}" for text in comparison.verdicts),
        table(columns, rows, indent="  "),
        _titled("curves", _curves(comparison)),
        _titled("differs", _differences(comparison, names)),
        _titled("equal", fields((key, words.line(each)) for key, each in comparison.equal.items())),
        _titled("diagnosis", _listed(said)),
        _titled("warnings", _listed(comparison.warnings)),
        painted(fill(tables.INTERVALS[comparison.kind], 79), "dim"),
    ]
    return "\n\n".join(part for part in parts if part)


def _titled(title: str, body: str) -> str:
    return f"{painted(title, 'bold')}\n{body}" if body else ""


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"  {words.line(text)}" for text in texts)


def _differences(comparison: Comparison, names: list[str]) -> str:
    found = tables.settings(comparison)
    if not found:
        return ""
    rows = [["≠" if not fair else "", key, *values] for key, values, fair in found]
    head, *lines = aligned([Column(each) for each in ("", "", *names)], rows)
    return "\n".join([f"  {painted(head, 'dim')}", *(f"  {line}" for line in lines)])


def _curves(comparison: Comparison) -> str:
    """The loss, and the first metric of the evaluations, from the first to the last step."""
    rows = []
    for name in _drawn(comparison):
        having = [each for each in comparison.contestants if name in each.curves]
        scale = _scale([each.curves[name] for each in having])
        for each in having:
            if told := [value for value in each.curves[name].values if value is not None]:
                bars = _bars(each.curves[name], scale)
                rows.append([name, each.name, words.figure(told[0]), bars, words.figure(told[-1])])
    if not rows:
        return ""
    sides = [Column(""), Column(""), Column("", right=True), Column(""), Column("", right=True)]
    return "\n".join(f"  {line}" for line in aligned(sides, rows)[1:])


def _drawn(comparison: Comparison) -> list[str]:
    names = dict.fromkeys(name for each in comparison.contestants for name in each.curves)
    return [*(["loss"] if "loss" in names else []), *[x for x in names if x.startswith("eval")][:1]]


def _scale(lines: Sequence[Line]) -> Callable[[float], str]:
    """The bar of a value; all curves of a kind share it."""
    bent = log if is_wide(lines) else float
    known = [bent(value) for line in lines for value in line.values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    steps = (len(BARS) - 1) / ((high - low) or 1.0)
    return lambda value: BARS[round((bent(value) - low) * steps)]


def _bars(line: Line, scale: Callable[[float], str]) -> str:
    """Means of equal parts of the curve."""
    count = len(line.values)
    parts = min(WIDTH, count)
    bars = ""
    for part in range(parts):
        inside = line.values[part * count // parts : (part + 1) * count // parts]
        known = [value for value in inside if value is not None]
        bars += scale(sum(known) / len(known)) if known else " "
    return bars
