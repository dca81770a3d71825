"""A comparison as Markdown that pastes into a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runners import words
from runners.comparison import Comparison, table, verdicts

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&@])")


def markdown(comparison: Comparison) -> str:
    """Verdicts, the table, what differs and what is equal; it ends with a newline."""
    parts = [
        _warned(verdicts.unequal(comparison)),
        f"### {_escaped(comparison.title)}",
        _list(comparison.verdicts),
        _figures(comparison),
        _differences(comparison),
        _equal(comparison),
        _list([*comparison.warnings, *_diagnoses(comparison)]),
        f"<sub>{table.INTERVALS[comparison.kind]}</sub>",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _warned(sentence: str) -> str:
    return f"**{_escaped(sentence)}**" if sentence else ""


def _figures(comparison: Comparison) -> str:
    heads, rows = table.table(comparison)
    return _table([head.name for head in heads], [head.right for head in heads], rows)


def _differences(comparison: Comparison) -> str:
    found = table.settings(comparison)
    if not found:
        return ""
    names = [each.name for each in comparison.contestants]
    rows = [[key if fair else f"⚠ {key}", *values] for key, values, fair in found]
    return _table(["differs", *names], [False] * (1 + len(names)), rows)


def _equal(comparison: Comparison) -> str:
    told = [f"{key} {value}" for key, value in comparison.equal.items()]
    return f"Equal: {_escaped(' · '.join(told))}" if told else ""


def _diagnoses(comparison: Comparison) -> list[str]:
    return [f"{each.name}: {each.diagnosis}" for each in comparison.contestants if each.diagnosis]


def _table(heads: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        [_escaped(head) for head in heads],
        ["---:" if each else "---" for each in right],
        *([_escaped(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", words.line(text))
