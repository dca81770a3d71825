"""Filter expressions over runs: `lr>0.1 status:failed -tag:old "two words"`.

A run matches an expression if it matches all of its terms, which blanks separate. A term is a word
that the run's texts must contain, or a key with an operator and a value. "-" before a term excludes
the runs that match it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeGuard, TypeVar

from distrain.runners.analysis.run_keys import (
    FACTS,
    KINDS,
    SECONDS,
    STATUSES,
    TEXT,
    KnownKeys,
    ListedRun,
    RunKey,
    Value,
)
from distrain.runners.errors import ConfigError

Run = TypeVar("Run", bound=ListedRun)
Test = Callable[[Value], bool]

ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_CHOICES = {"status": STATUSES, "kind": KINDS}
# What may stand before and after an operator; a value in quotes may have blanks.
TERM = re.compile(
    r"""(?P<minus>-(?=[^\s]))?
        (?:(?P<key>[^\s"<>=!:]+)(?P<operator>!=|<=|>=|[<>=:]))?
        (?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]*))
        (?=\s|$)""",
    re.VERBOSE,
)
_SECONDS = re.compile(r"(?:\d+(?:\.\d*)?(?:min|[smhdw]))+")
_SECONDS_PART = re.compile(r"(\d+(?:\.\d*)?)(min|[smhdw])")


class Term(NamedTuple):
    """A condition: the run's value of a key passes a test, or its text contains the word."""

    is_excluded: bool
    word: str
    key: RunKey | None = None
    test: Test | None = None

    def matches(self, run: ListedRun) -> bool:
        if self.key is None or self.test is None:
            return (self.word in run.search_text) != self.is_excluded
        return self.test(run.value_of(self.key)) != self.is_excluded


class RunFilter(NamedTuple):
    """A parsed expression."""

    terms: tuple[Term, ...]

    def matches(self, run: ListedRun) -> bool:
        """Return whether a run matches all terms."""
        return all(term.matches(run) for term in self.terms)

    def select(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that match, in their order."""
        return [run for run in runs if self.matches(run)] if self.terms else [*runs]


class FilterError(ConfigError):
    """One sentence on the first wrong term; `good` is the filter of all terms that are right."""

    def __init__(self, text: str, good: RunFilter) -> None:
        super().__init__(text)
        self.good = good


def parse_filter(text: str, keys: KnownKeys) -> RunFilter:
    """Return the filter of an expression over runs with these keys. Raises FilterError."""
    terms = []
    problems = []
    at = 0
    while (at := _skip_blanks(text, at)) < len(text):
        found = TERM.match(text, at)
        if found is None:
            rest = text[at:].split()[0]
            problems.append(f"a quote is not closed, or is in the middle of a word: {rest}")
            break
        try:
            terms.append(_term(found, keys))
        except ConfigError as error:
            problems.append(str(error))
        at = found.end()
    good = RunFilter(tuple(terms))
    if problems:
        raise FilterError(problems[0], good)
    return good


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _term(found: re.Match[str], keys: KnownKeys) -> Term:
    minus, word, sign = found["minus"], found["key"], found["operator"]
    value = found["plain"] if found["quoted"] is None else found["quoted"]
    if word is None:
        return Term(bool(minus), value.casefold())
    key = keys.find(word)
    is_excluded = bool(minus) != (sign == "!=")
    written = f"{word}{sign}"
    if not value and found["quoted"] is None:
        raise ConfigError(f"{written} needs a value")
    return Term(is_excluded, "", key, _test(key, written, sign, value))


def _test(key: RunKey, written: str, sign: str, value: str) -> Test:
    """Return the test of the values of a key. `written` is the term up to its value."""
    kind = FACTS.get(key.name) if key.kind == "fact" else None
    if kind == TEXT and sign in ORDERS:
        raise ConfigError(f"{key} is text: write {key}:… or {key}=…, not {written}")
    if kind == SECONDS:
        return _seconds_test(key, sign, value)
    if sign in ORDERS:
        return _order_test(written, sign, value)
    choices = _CHOICES.get(key.name) if kind == TEXT else None
    if choices and not any(value.casefold() in choice for choice in choices):
        raise ConfigError(f"no {key} is called {value}; it is one of {', '.join(choices)}")
    return _equality_test(value, contains=sign == ":")


def _seconds_test(key: RunKey, sign: str, value: str) -> Test:
    if sign not in ORDERS or not _SECONDS.fullmatch(value):
        raise ConfigError(f"compare {key} with < or >, and with a unit: {key}<2d, {key}>1h30min")
    seconds = sum(float(part) * _UNITS[unit] for part, unit in _SECONDS_PART.findall(value))
    order = ORDERS[sign]
    return lambda found: _is_number(found) and order(found, seconds)


def _order_test(written: str, sign: str, value: str) -> Test:
    number = _number(value)
    if number is None:
        raise ConfigError(f"{written} needs a number, not {value}")
    order = ORDERS[sign]
    return lambda found: _is_number(found) and order(found, number)


def _equality_test(value: str, contains: bool) -> Test:
    """Return the test of `=` and `:`. Numbers are compared as numbers, truth values by name."""
    wanted = value.casefold()
    number = _number(value)

    def passes(found: Value) -> bool:
        if _is_number(found) and number is not None:
            return found == number
        if found is None:
            return False
        parts = found if isinstance(found, tuple) else (str(found),)
        texts = (part.casefold() for part in parts)
        return any(wanted in text if contains else wanted == text for text in texts)

    return passes


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(text: str) -> float | None:
    """Return the number of a text, in percent too: "98.5%" is 0.985."""
    try:
        number = float(text.removesuffix("%").rstrip())
    except ValueError:
        return None
    if math.isnan(number):
        return None
    return number / 100 if text.endswith("%") else number
