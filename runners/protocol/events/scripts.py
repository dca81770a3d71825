"""What ranks of a script report: values it logs, its settings, and what it does."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from distrain.runners.protocol.events.base import Event, Int

Setting = str | Int | float | bool | None  # no tables, so that no message is nested deeply


class LoggedStats(msgspec.Struct, frozen=True):
    """Values of one name that were logged one after another; None where none was finite.

    `last` is None too where the last value was not finite.
    """

    count: Int
    total: float | None
    low: float | None
    high: float | None
    last: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> LoggedStats:
        """Summarise values; those that are not finite are counted and otherwise left out.

        Values whose sum is too large for a float are treated as not finite.
        """
        given = [*values]
        finite = [value for value in given if math.isfinite(value)]
        try:
            total = math.fsum(finite)
        except OverflowError:
            finite = []
        if not finite:
            return cls(len(given), None, None, None, None)
        last = given[-1] if math.isfinite(given[-1]) else None
        return cls(len(finite), total, min(finite), max(finite), last)


class Logged(Event, frozen=True, tag="logged"):
    """What a script has logged on a rank, by name: values of the steps up to `step`."""

    time: float
    rank: Int
    step: Int
    values: dict[str, LoggedStats]


class RankEvaluation(Event, frozen=True, tag="rank_evaluation"):
    """A rank's share of an evaluation of a script: means over its `samples`, None if not finite.

    The `number`-th of each rank belong together. `reduced` means are those of all ranks already;
    they have no number.
    """

    time: float
    rank: Int
    number: Int
    step: Int
    samples: Int
    metrics: dict[str, float | None]
    reduced: bool = False


class ScriptSettings(Event, frozen=True, tag="script_settings"):
    """What a script has passed to `init`, and where its figures come from, by name.

    `missing` says of other figures why there are none.
    """

    time: float
    rank: Int
    config: dict[str, Setting] = {}
    sources: dict[str, str] = {}
    missing: dict[str, str] = {}


class RankFacts(Event, frozen=True, tag="rank_facts"):
    """What a rank of a script does that may be a mistake if all ranks do it, after `step` steps.

    Later messages replace earlier ones; None is not known yet. `uses_process_group`: something was
    sent in it between steps. `batches` are checksums of the first batches. `saved` are the first
    files that it has written, as absolute paths. `has_idle_optimizer`: it ends, and an optimizer
    was made that has never stepped. `group_size`: the ranks of its process group, if these are more
    than those of the run.
    """

    time: float
    rank: Int
    step: Int
    has_process_group: bool | None = None
    uses_process_group: bool | None = None
    batches: list[Int] = []
    saved: list[str] = []
    has_idle_optimizer: bool = False
    group_size: Int | None = None
