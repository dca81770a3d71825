"""A comparison as Markdown, to be pasted into a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from distrain.runners import formatting
from distrain.runners.analysis.comparison import sentences, table
from distrain.runners.analysis.comparison.model import Comparison

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&@])")


def render_markdown(comparison: Comparison) -> str:
    """Return results, figures and settings as Markdown that ends with a newline."""
    diagnoses = [
        f"{each.name}: {each.diagnosis}" for each in comparison.candidates if each.diagnosis
    ]
    parts = [
        _bold(sentences.describe_unequal(comparison)),
        _escape(sentences.describe_unchecked(comparison.unchecked)),
        f"### {_escape(comparison.title)}",
        _list(comparison.results),
        _figures(comparison),
        _differences(comparison),
        _equal_settings(comparison),
        _list([*comparison.warnings, *diagnoses]),
        f"<sub>{table.INTERVAL_NOTES[comparison.kind]}</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bold(sentence: str) -> str:
    return f"**{_escape(sentence)}**" if sentence else ""


def _figures(comparison: Comparison) -> str:
    heads, rows = table.make_table(comparison)
    return _table([head.name for head in heads], [head.right for head in heads], rows)


def _differences(comparison: Comparison) -> str:
    settings = table.setting_rows(comparison)
    if not settings:
        return ""
    names = [candidate.name for candidate in comparison.candidates]
    rows = [[f"{row.mark} {row.key}".strip(), *row.values] for row in settings]
    return _table(["differs", *names], [False] * (1 + len(names)), rows)


def _equal_settings(comparison: Comparison) -> str:
    settings = [f"{key} {value}" for key, value in comparison.equal.items()]
    return f"Equal: {_escape(' · '.join(settings))}" if settings else ""


def _table(heads: Sequence[str], right: Sequence[bool], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        [_escape(head) for head in heads],
        ["---:" if aligned_right else "---" for aligned_right in right],
        *([_escape(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(text)}" for text in texts)


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", formatting.single_line(text))
