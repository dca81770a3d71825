"""What is known of each rank: the table `ranks` of metrics.db."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from distrain.runners import formatting
from distrain.runners.protocol.events import (
    Attempt,
    Event,
    Exited,
    Failure,
    Finished,
    Hello,
    Int,
    Phase,
)


class RankInfo(msgspec.Struct, kw_only=True):
    """What is known of a rank now.

    `code` is the exit code of its process (negative: a signal). The table `ranks` changes with
    events only; the reader brings `step`, `epoch` and `last_seen` up to the last window.
    """

    rank: Int
    local_rank: Int = 0
    pid: Int = 0
    host: str = ""
    device: str = ""
    device_uuid: str = ""
    step: Int = 0
    epoch: Int = 0
    phase: str = "starting"
    finished: bool = False
    code: Int | None = None
    last_seen: float = 0.0


# Phases of a rank that has reported an error as its end.
FAILED, INTERRUPTED = "failed", "interrupted"

RANK_FIELDS = RankInfo.__struct_fields__
_FROM_HELLO = ("local_rank", "pid", "host", "device", "device_uuid")


def rank_info(row: Sequence[Any]) -> RankInfo:
    """Return what a row of the table has, with printable text. Raises msgspec.ValidationError."""
    texts = (formatting.printable(value) if isinstance(value, str) else value for value in row)
    values = dict(zip(RANK_FIELDS, texts, strict=True))
    return msgspec.convert(values, RankInfo, strict=False)


def update_ranks(ranks: dict[int, RankInfo], events: Iterable[Event], now: float) -> set[int]:
    """Bring `ranks` up to date with new events; return the ranks that changed."""
    changed: set[int] = set()

    def get(rank: int) -> RankInfo:
        changed.add(rank)
        info = ranks.setdefault(rank, RankInfo(rank=rank))
        info.last_seen = now
        return info

    for event in events:
        match event:
            case Attempt():
                changed |= ranks.keys()
                _reset(ranks, event, now)
            case Hello(role="rank"):
                info = get(event.rank)
                info.finished = False  # an earlier process of it may have
                for name in _FROM_HELLO:
                    setattr(info, name, getattr(event, name))
            case Phase():
                info = get(event.rank)
                info.phase = event.phase
                info.step = max(info.step, event.step)
            case Failure():
                is_interrupted = event.error == KeyboardInterrupt.__name__
                get(event.rank).phase = INTERRUPTED if is_interrupted else FAILED
            case Finished():
                info = get(event.rank)
                info.phase = "finished"
                info.finished = True
                info.step = event.step
            case Exited():
                get(event.rank).code = event.code
    return changed


def _reset(ranks: dict[int, RankInfo], attempt: Attempt, now: float) -> None:
    for rank, info in ranks.items():
        ranks[rank] = RankInfo(
            rank=rank,
            local_rank=info.local_rank,
            host=info.host,
            device=info.device,
            device_uuid=info.device_uuid,
            step=attempt.step,
            last_seen=now,
        )
