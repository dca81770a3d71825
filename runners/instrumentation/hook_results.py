"""What the hooks into a script's libraries report to its session; importing it loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distrain.runners.protocol.events import RankFacts


class Communication(NamedTuple):
    """Of a step, as it was timed: seconds of the wait for gradients after they are computed, its
    share of the backward pass, and seconds in which gradients were sent during that pass.
    """

    waited: float
    share: float
    overlap: float


@dataclass
class Automatic:
    """What the hooks tell of a script that calls nothing; each may be unknown."""

    communication: Callable[[], Communication | None] = lambda: None
    """Returns what is known of a step."""

    expects_step: Callable[[], bool] = lambda: False
    """Returns whether an optimizer exists whose steps will be seen."""

    facts: Callable[[int, bool], RankFacts | None] = lambda _steps, _at_end: None
    """Returns facts of this rank after so many steps, and whether these are the last, if any are
    new.
    """

    add_batch: Callable[[object, Any], None] | None = None
    """Takes the source of a batch of training data, and the batch; None if none are wanted."""

    begin_track: Callable[[], None] = lambda: None
    """Is called when the script names its training data."""

    skipped: list[Any] = field(default_factory=list)
    """Flags of steps that a gradient scaler has skipped; may be on a device."""

    boards: dict[type, dict[str, str]] = field(default_factory=dict)
    """What names begin with, by the type of a TensorBoard writer and its folder."""
