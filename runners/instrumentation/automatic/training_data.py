"""Which data sets a program trains with: those whose batches steps follow."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class TrainingData:
    """Learns which data sets are those of training, from batches that are read with gradients.

    For a new data set, the first steps decide. Several data sets may be read for one step. If one
    is no longer read, steps count for it only until another one is read. `count_steps` returns how
    many there were.
    """

    def __init__(self, count_steps: Callable[[], int]) -> None:
        self._count_steps = count_steps
        self._known: dict[int, Any] = {}  # by id: a weak reference, where there can be one
        self._new: dict[int, int] = {}  # by id: the steps before the last batch
        self._left: int | None = None  # the new one that was left last

    def may_train(self, data_set: Any) -> bool:
        """Return whether a batch that is asked for now may be training data."""
        key = id(data_set)
        if self._left is not None:
            self._forget_left(unless=key)
        if key in self._known:
            return True
        steps = self._count_steps()
        if steps > self._new.get(key, steps):
            self._learn(data_set)
            return True
        self._new[key] = steps
        return not self._known

    def knows(self, data_set: Any) -> bool:
        """Return whether the program has trained with a data set."""
        return id(data_set) in self._known

    def leave(self, key: int) -> None:
        """Note that the data set with this id is no longer read."""
        if key in self._new:
            self._forget_left(unless=key)
            self._left = key

    def begin_again(self, key: int) -> None:
        """Note a new pass over the data set with this id, the last one of which may not have ended.

        Other data may have been read since, so that steps since then do not count for it.
        """
        if key != self._left:
            self._new.pop(key, None)

    def _forget_left(self, unless: int) -> None:
        if self._left is not None and self._left != unless:
            del self._new[self._left]
        self._left = None

    def _learn(self, data_set: Any) -> None:
        key = id(data_set)
        del self._new[key]
        try:
            self._known[key] = weakref.ref(data_set, lambda _: self._known.pop(key))
        except TypeError:  # such as a list; another one may get its id
            self._known[key] = None
