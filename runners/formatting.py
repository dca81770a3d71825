"""Formatting of figures: a duration, rate or size looks the same on every screen."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

MISSING = "–"
SHOWN_OF_A_WORD = 1000  # characters: a path may have so many
_LONG_WORD = re.compile(rf"\S{{{SHOWN_OF_A_WORD + 1},}}")
LISTED_AT_MOST = 8  # ranks, nodes and the like that a sentence lists one by one
# For character classes: controls beyond ASCII, line separators and marks of the writing direction.
INVISIBLE = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_NOT_PRINTABLE = re.compile(rf"[\x00-\x1f{INVISIBLE}\ud800-\udfff]")
# ECMA-48: control sequences, control strings (titles, links), and escapes of two bytes.
COLOUR = re.compile(r"\x1b\[[0-9;]{0,64}m")
_COLOUR_PARTS = re.compile(rf"({COLOUR.pattern})")
_ESCAPE = re.compile(
    rf"({COLOUR.pattern})|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
)
# A progress bar is redrawn after a carriage return or after backspaces.
_REDRAWN = re.compile(r"\r|\x08{2,}")
_NO_ACCURACY = r"err|loss|(?:gap|drop|diff|delta|std|var)(?![a-z])"
_ACCURACY = re.compile(
    rf"(?:topk?|acc|accuracy)(?![a-z])(?!.*(?:(?<![a-z])(?i:{_NO_ACCURACY})|Err|Loss))"
)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float | None) -> str:
    """Return seconds in at most two units: "0.42 s", "12.3 s", "4 min 05 s", "2 h 03 min"."""
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
    """Return the duration of a part of a step: "0.12 ms", "4.9 ms", "132 ms", "2,041 ms"."""
    value = 1000 * seconds
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def age(then: float | None, now: float | None = None) -> str:
    """Return how long ago a Unix time was, in one unit: "12 s", "4 min", "3 h", "2 d"."""
    if then is None:
        return MISSING
    seconds = max(0.0, (time.time() if now is None else now) - then)
    for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def count(number: float | None) -> str:
    """Return a whole number with separators of thousands: "43,110"."""
    return MISSING if number is None else f"{number:,.0f}"


def signal_name(number: int) -> str:
    """Return a signal's name: "SIGKILL", or "signal 35" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def single_line(text: str) -> str:
    """Return a text as one line of printable characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text without colours, and "·" for each other character that controls a terminal."""
    return _NOT_PRINTABLE.sub("·", COLOUR.sub("", text))


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, but with its line breaks and tabs."""
    lines = text.replace("\r\n", "\n")
    return _NOT_PRINTABLE.sub(lambda found: found[0] if found[0] in "\n\t" else "·", lines)


def shortened(text: str) -> str:
    """Return a text in which no word is so long that it hides the others."""
    return _LONG_WORD.sub(lambda found: f"{found[0][:SHOWN_OF_A_WORD]}…", text)


def without_escapes(text: str) -> str:
    """Return a text without colours and other control sequences, complete ones or not."""
    return _ESCAPE.sub("", text).replace("\x1b", "")


def terminal_line(text: str) -> str:
    """Return a line of a log as a terminal shows it in the end: printable, with colours and tabs.

    Control sequences are left out. Of a progress bar that was redrawn the last state stays.
    """
    if text.isprintable():  # as most lines are
        return text
    states = _REDRAWN.split(_ESCAPE.sub(lambda found: found[1] or "", text))
    shown = [state for state in states if COLOUR.sub("", state).strip()]
    parts = _COLOUR_PARTS.split(shown[-1] if shown else "")
    return "".join(
        part if COLOUR.fullmatch(part) else _NOT_PRINTABLE.sub(_keep_tab, part) for part in parts
    )


def _keep_tab(found: re.Match[str]) -> str:
    return "\t" if found[0] == "\t" else "·"


def shell_words(words: Iterable[str]) -> str:
    """Return a command line of printable characters, which bash reads as these words."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if not has_control_characters(word):
        import shlex  # lists and plots show no command lines

        return shlex.quote(word)
    quoted = word.replace("\\", r"\\").replace("'", r"\'")
    escaped = _NOT_PRINTABLE.sub(lambda found: ascii(found[0])[1:-1], quoted)
    return f"$'{escaped}'"


def has_control_characters(text: str) -> bool:
    """Return whether a text could control a terminal, or has more than one line."""
    return _NOT_PRINTABLE.search(text) is not None


def plural(number: int, noun: str) -> str:
    """Return a number of things: "1 rank", "2 ranks", "1,024 ranks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def figure(value: float | None) -> str:
    """Return a number with about four digits: "0.0712", "3.142", "617", "12,345", "1.2e-05".

    What has so many digits that nobody counts them is "1.2e+18".
    """
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    if value and not 1e-3 <= abs(value) < 1e15:
        return f"{value:.1e}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.4f}"


def rate(per_second: float | None, unit: str = "samples/s") -> str:
    """Return a rate with its unit: "5,432 samples/s"."""
    return MISSING if per_second is None else f"{round_rate(per_second)} {unit}"


def round_rate(per_second: float | None) -> str:
    """Return a rate without its unit, for columns that have the unit in their header."""
    if per_second is None or math.isnan(per_second):
        return MISSING
    if per_second >= 100:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 10 else f"{per_second:.2f}"


def percent(fraction: float | None, digits: int = 0) -> str:
    """Return a fraction in percent: "12 %"."""
    return MISSING if fraction is None else f"{100 * fraction:.{digits}f} %"


def size(number: float | None) -> str:
    """Return a number of bytes: "512 B", "1.2 MiB", "12.3 GiB"."""
    if number is None:
        return MISSING
    power = 0
    while abs(number) >= 999.5 and power < len(_SIZES) - 1:
        number /= 1024
        power += 1
    return f"{number:.0f} {_SIZES[0]}" if power == 0 else f"{number:.3g} {_SIZES[power]}"


def logged_value(value: float | None) -> str:
    """Return the last value that a script has logged by a name; None stands for NaN or infinity."""
    return "not finite" if value is None else figure(value)


def metric(name: str, value: float | None) -> str:
    """Return an evaluation metric with its name: "top1 96.39 %", "loss 0.1345"."""
    return f"{name} {metric_value(name, value)}"


def metric_value(name: str, value: float | None) -> str:
    """Return the value of an evaluation metric; accuracies are in percent."""
    if is_accuracy(name) and value is not None and 0 <= value <= 1:
        return percent(value, 2)
    return figure(value)


def setting(value: str | float | tuple[str, ...] | None) -> str:
    """Return a value of a config as a person writes it: "0.1", "25", "true", "adamw"."""
    if isinstance(value, tuple):
        return ", ".join(value) or MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return MISSING if value is None or value == "" else str(value)


def sort_metrics(metrics: Iterable[str]) -> list[str]:
    """Return the names of an evaluation's metrics in alphabetical order, the loss last."""
    names = (name for name in metrics if name != "samples")
    return sorted(names, key=lambda name: (name == "loss", name))


def is_accuracy(metric: str) -> bool:
    """Return whether a metric of that name is an accuracy: from 0 to 1, higher is better.

    No error, loss or difference, such as top1_error, and no other word, such as acceleration, is
    one.
    """
    return _ACCURACY.match(metric) is not None


def best_is(metric: str) -> Literal["max", "min"] | None:
    """Return whether the maximum or the minimum of a metric is best, where its name tells it."""
    if metric.lower().endswith(("loss", "perplexity", "bits_per_byte")):
        return "min"
    return "max" if is_accuracy(metric) else None


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers as ranges: "0–3, 6"."""
    parts: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in parts)


def ranks(numbers: Sequence[int]) -> str:
    """Return ranks with their noun: "rank 0", "ranks 0–3, 6"."""
    noun = "rank" if len(numbers) == 1 else "ranks"
    return f"{noun} {ranges(numbers)}"


def rank_steps(steps: Mapping[int, int]) -> str:
    """Return the step of each rank: "rank 0 at step 7, rank 1 at step 8".

    Many ranks are grouped by step.
    """
    if len(steps) <= LISTED_AT_MOST:
        return ", ".join(f"rank {rank} at step {step}" for rank, step in steps.items())
    groups: dict[int, list[int]] = {}
    for rank, step in steps.items():
        groups.setdefault(step, []).append(rank)
    return ", ".join(f"{ranks(group)} at step {step}" for step, group in sorted(groups.items()))


def time_of_day(moment: float) -> str:
    """Return a Unix time as the local time of day."""
    return _format_time(moment, "%H:%M:%S")


def date(moment: float | None) -> str:
    """Return a Unix time as local date and time."""
    return MISSING if moment is None else _format_time(moment, "%Y-%m-%d %H:%M:%S")


def _format_time(moment: float, template: str) -> str:
    try:
        return time.strftime(template, time.localtime(moment))
    except (OverflowError, ValueError, OSError):  # outside the range of the C library
        return MISSING
