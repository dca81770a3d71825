"""Select rows by a filter expression, and complete the word that is being typed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from distrain.runners import formatting
from distrain.runners.analysis.run_filter import FilterError, parse_filter
from distrain.runners.analysis.run_keys import KnownKeys, Value
from distrain.runners.errors import ConfigError
from distrain.tui.data.completions import Completions
from distrain.tui.data.run_rows import RunRow, known_keys

MOST_COMPLETIONS = 24
LONGEST_NUMBER = 10  # characters; a measured one has more, and nobody types them
OPERATORS = "<>=!:"
_ENDS = f'{OPERATORS}" '


class RowFilter:
    """Selects rows by an expression. While a term is wrong, by the others.

    `problem` says what is wrong.
    """

    def __init__(self) -> None:
        self.problem = ""

    def select(self, rows: Collection[RunRow], text: str) -> list[RunRow]:
        """Return the rows that match."""
        self.problem = ""
        try:
            keys = known_keys(rows) if any(sign in text for sign in OPERATORS) else KnownKeys()
            found = parse_filter(text, keys)
        except FilterError as error:
            self.problem = str(error)
            found = error.good
        return found.select(rows)


def complete(text: str, rows: Collection[RunRow]) -> Completions:
    """Return how the last word of a filter may continue: a key, or a value of the key before it."""
    start = max(text.rfind(" "), text.rfind('"')) + 1
    word = text[start:]
    start += word.startswith("-")
    word = text[start:]
    signs = [at for at, character in enumerate(word) if character in OPERATORS]
    if not signs:
        return Completions(start, _starting_with(word, known_keys(rows).words()) if word else ())
    key, typed = word[: signs[0]], word[signs[0] :].lstrip(OPERATORS)
    try:
        found = known_keys(rows).find(key)
    except ConfigError:
        return Completions(start)
    values = Counter(each for row in rows for each in _texts(row.value_of(found)))
    ranked = [value for value, _ in values.most_common(10 * MOST_COMPLETIONS)]
    return Completions(len(text) - len(typed), _starting_with(typed, ranked))


def _texts(value: Value) -> Sequence[str]:
    """Return the words that a value is found by."""
    if value is None:
        return ()
    if isinstance(value, int | float):
        exact = formatting.setting(value)
        return (exact if len(exact) <= LONGEST_NUMBER else f"{value:.6g}",)
    parts = value if isinstance(value, tuple) else (str(value),)
    return [part if set(part).isdisjoint(_ENDS) else f'"{part}"' for part in parts if part]


def _starting_with(typed: str, words: Iterable[str]) -> list[str]:
    """Return the words that continue what is typed, then those that contain it."""
    low = typed.casefold()
    found = [word for word in words if low in word.casefold() and word != typed]
    found.sort(key=lambda word: not word.casefold().startswith(low))
    return found[:MOST_COMPLETIONS]
