"""A glance at one run: the curves of its loss and rate, and how its config differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distrain.runners import formatting
from distrain.runners.errors import DistrainError
from distrain.runners.records.flat_config import FlatConfig
from distrain.runners.records.reader import Record

POINTS = 64
TRAINING_LOSS = "training loss"
RATE = "samples/s by window"


class GlanceCurve(NamedTuple):
    """A curve of few points, drawn from 0 or from its least value; NaN is a gap."""

    title: str
    values: Sequence[float]
    from_zero: bool = False


class RunGlance(NamedTuple):
    """What is read of a run while the cursor is on it; `problem` is why there is nothing."""

    run_id: str
    curves: Sequence[GlanceCurve] = ()
    problem: str = ""


def read_glance(folder: Path) -> RunGlance:
    """Read the curves of a run: what a script has logged first where it has no loss."""
    try:
        with Record(folder) as record:
            return RunGlance(folder.name, _read_curves(record))
    except DistrainError as error:
        return RunGlance(folder.name, problem=str(error))


def _read_curves(record: Record) -> list[GlanceCurve]:
    overall = record.overall(points=POINTS, axis="step")
    found = []
    for name, title in (("loss", TRAINING_LOSS), ("samples_per_s", RATE)):
        if len(overall) and any(value == value for value in overall[name]):
            found.append(GlanceCurve(title, overall[name], from_zero=title == RATE))
    if not (found and found[0].title == TRAINING_LOSS):
        for name in list(record.logged())[:1]:
            found.insert(0, GlanceCurve(name, record.logged_curve(name, points=POINTS)["value"]))
    return found


class SettingPair(NamedTuple):
    """A key with its value in this run and in the other one, as they are shown."""

    key: str
    own: str
    other: str


def _setting(value: str | float | tuple[str, ...] | None) -> str:
    return "unset" if value is None else formatting.setting(value)


def config_differences(own: FlatConfig, other: FlatConfig) -> list[SettingPair]:
    """Return the keys that differ, in alphabetical order."""
    keys = sorted({*own, *other} - {"code_dir", "description"})
    pairs = (
        SettingPair(key, *(_setting(config.get(key)) for config in (own, other)))
        for key in keys
        if own.get(key) != other.get(key)
    )
    return [*pairs]
