"""How figures are worded: the same duration, rate or size looks the same on every screen."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence

MISSING = "–"
MANY = 8  # ranks, more than which are not told one by one
# Controls, what ends a line or turns the direction of writing, and halves of characters.
_ORDERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float | None) -> str:
    """Seconds in the two units that matter: "0.42 s", "12.3 s", "4 min 05 s", "2 h 03 min"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0.9995:
        return f"{max(seconds, 0):.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    minutes = round(seconds / _MINUTE)
    if minutes < _DAY // _MINUTE:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / _HOUR)
    return f"{hours // 24} d {hours % 24} h"


def milliseconds(seconds: float) -> str:
    """A part of a step: "0.12 ms", "4.9 ms", "132 ms", "2,041 ms"."""
    ms = 1000 * seconds
    return f"{ms:,.{0 if ms >= 100 else 1 if ms >= 1 else 2}f} ms"


def age(then: float | None, now: float | None = None) -> str:
    """How long ago a Unix time was, in one unit: "12 s", "4 min", "3 h", "2 d"."""
    if then is None:
        return MISSING
    seconds = max(0.0, (time.time() if now is None else now) - then)
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def count(number: float | None) -> str:
    """A whole number with thousands apart: "43,110"."""
    return MISSING if number is None else f"{number:,.0f}"


def signal_name(number: int) -> str:
    """SIGKILL; "signal 35" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def line(text: str) -> str:
    """Whatever a text holds, in one line that gives a terminal no orders."""
    return harmless(" ".join(text.split()))


def harmless(text: str) -> str:
    """The text with a dot for all that a terminal would not show."""
    return _ORDERS.sub("·", text)


def gives_orders(text: str) -> bool:
    """Whether a terminal would do something with it, or end the line, instead of showing it."""
    return _ORDERS.search(text) is not None


def things(number: int, noun: str) -> str:
    """ "1 rank", "2 ranks", "1,024 ranks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def figure(value: float | None) -> str:
    """A measured number to about four digits: "0.0712", "3.142", "617", "12,345", "1.2e-05"."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.4f}"


def rate(per_second: float | None) -> str:
    """ "5,432 samples/s"."""
    return MISSING if per_second is None else f"{round_rate(per_second)} samples/s"


def round_rate(per_second: float | None) -> str:
    """A rate without its unit, for columns that name it in their head."""
    if per_second is None or math.isnan(per_second):
        return MISSING
    digits = 0 if per_second >= 100 else 1 if per_second >= 10 else 2
    return f"{per_second:,.{digits}f}"


def percent(fraction: float | None, digits: int = 0) -> str:
    return MISSING if fraction is None else f"{100 * fraction:.{digits}f} %"


def size(number: float | None) -> str:
    """Bytes: "512 B", "1.2 MiB", "12.3 GiB"."""
    if number is None:
        return MISSING
    power = 0
    while abs(number) >= 1000 and power < len(_SIZES) - 1:
        number, power = number / 1024, power + 1
    return f"{number:.0f} {_SIZES[0]}" if power == 0 else f"{number:.3g} {_SIZES[power]}"


def metric(name: str, value: float | None) -> str:
    """One evaluation metric; shares of right answers in percent: "top1 96.39 %", "loss 0.1345"."""
    return f"{name} {metric_value(name, value)}"


def metric_value(name: str, value: float | None) -> str:
    if is_share(name) and value is not None and 0 <= value <= 1:
        return percent(value, 2)
    return figure(value)


def shares_first(metrics: Iterable[str]) -> list[str]:
    """Names of an evaluation's metrics in the order in which they are told, the loss last."""
    names = (name for name in metrics if name != "samples")
    return sorted(names, key=lambda name: (name == "loss", name))


def is_share(metric: str) -> bool:
    """Whether a metric of that name is a share of right answers: more is better, 1 is all."""
    return metric.startswith(("top", "acc"))


def span(numbers: Sequence[int]) -> str:
    """Numbers of ranks, close ones joined: "0–3, 6"."""
    parts: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in parts)


def ranks(numbers: Sequence[int]) -> str:
    """ "rank 0", "ranks 0–3, 6"."""
    return f"rank{'' if len(numbers) == 1 else 's'} {span(numbers)}"


def positions(steps: Mapping[int, int]) -> str:
    """At which step each rank is; of many ranks those at one step together."""
    if len(steps) <= MANY:
        return ", ".join(f"rank {rank} at step {step}" for rank, step in steps.items())
    together: dict[int, list[int]] = {}
    for rank, step in steps.items():
        together.setdefault(step, []).append(rank)
    return ", ".join(f"{ranks(each)} at step {step}" for step, each in sorted(together.items()))


def clock(moment: float) -> str:
    """A Unix time as the local time of day."""
    return _told(moment, "%H:%M:%S")


def date(moment: float | None) -> str:
    """A Unix time as local date and time."""
    return MISSING if moment is None else _told(moment, "%Y-%m-%d %H:%M:%S")


def _told(moment: float, how: str) -> str:
    try:
        return time.strftime(how, time.localtime(moment))
    except (OverflowError, ValueError, OSError):  # no time of this world
        return MISSING
