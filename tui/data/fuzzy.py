"""Which entries of a list match what a person types, best first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def search(
    entries: Sequence[T], query: str, name: Callable[[T], str], about: Callable[[T], str]
) -> list[T]:
    """Return the entries that match every word of the query, best first.

    A word matches the name of an entry as a part or by its letters in order ("fscr" finds "Full
    screen"), or its description as a part.
    """
    words = query.casefold().split()
    scored = []
    for entry in entries:
        scores = [_score(word, name(entry).casefold(), about(entry).casefold()) for word in words]
        if all(scores):
            scored.append((sum(scores), entry))
    scored.sort(key=lambda each: -each[0])
    return [entry for _, entry in scored]


def _score(word: str, name: str, about: str) -> float:
    """Return 0 where a word does not match, else more the closer it is to the name."""
    if word in name:
        starts_a_word = f" {name}".find(f" {word}") >= 0
        return (4.0 if starts_a_word else 3.0) + len(word) / len(name)
    if f" {word}" in f" {about}":
        return 2.0
    if span := _span(word, name):
        return 1.0 + len(word) / span
    return 0.5 if word in about else 0.0


def _span(word: str, name: str) -> int:
    """Return how many letters of a name hold all letters of a word in order; 0 if none do."""
    start = name.find(word[0])
    at = start - 1
    for letter in word:
        at = name.find(letter, at + 1)
        if at < 0:
            return 0
    return at - start + 1
