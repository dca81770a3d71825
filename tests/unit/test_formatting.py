"""Given a figure, then the same words for it everywhere."""

from __future__ import annotations

import math
import subprocess

import pytest

from distrain.runners import formatting


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (math.inf, "–"),
        (0, "0.00 s"),
        (0.9994, "1.00 s"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
        (86_399, "1 d 0 h"),
        (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert formatting.duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0.0000"),
        (0.07123, "0.0712"),
        (3.14159, "3.142"),
        (12_345.6, "12,346"),
        (1.2e-5, "1.2e-05"),
        (-1.7e308, "-1.7e+308"),
        (-math.inf, "-∞"),
    ],
)
def test_figures(value: float | None, said: str) -> None:
    assert formatting.figure(value) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (240_000, "234 KiB"),
        (999.7 * 2**20, "0.976 GiB"),
    ],
)
def test_sizes(number: float | None, said: str) -> None:
    assert formatting.size(number) == said


def test_only_shares_are_percent() -> None:
    assert formatting.metric("top1", 0.9639) == "top1 96.39 %"
    assert formatting.metric("loss", 0.9639) == "loss 0.9639"
    assert formatting.metric("acc_loss", 0.5) == "acc_loss 0.5000"
    assert formatting.metric("top1", None) == "top1 –"


@pytest.mark.parametrize(
    ("best", "metrics"),
    [
        ("max", ["top1", "topk", "top-5_acc", "acc", "acc@1", "acc/terrain", "accuracy"]),
        ("min", ["loss", "acc_loss", "accuracyLoss", "topology_loss", "perplexity"]),
        (
            None,
            [
                "top1_error",
                "top1Error",
                "accError",
                "accuracy_err",
                "accuracy_gap",
                "accel_rmse",
                "topics",
            ],
        ),
    ],
)
def test_a_name_tells_which_value_is_best(best: str | None, metrics: list[str]) -> None:
    assert [*map(formatting.best_is, metrics)] == [best] * len(metrics)


def test_spans_of_ranks() -> None:
    assert formatting.ranges([3, 0, 1, 2, 6]) == "0–3, 6"
    assert formatting.ranks([4]) == "rank 4"
    assert formatting.ranks([1, 0]) == "ranks 0–1"


def test_a_time_of_no_world_is_missing() -> None:
    assert formatting.time_of_day(1e300) == formatting.date(1e300) == formatting.date(None) == "–"


def test_ages_are_in_one_unit() -> None:
    assert [formatting.age(0, now) for now in (5, 61, 7200, 200_000)] == [
        "5 s",
        "1 min",
        "2 h",
        "2 d",
    ]


def test_a_command_line_is_printable_and_is_read_by_bash_as_the_same_words() -> None:
    words = ["train.py", "--note", "two\nlines, it's\ta \\", "é", ""]
    line = formatting.shell_words(words)
    assert line == r"train.py --note $'two\nlines, it\'s\ta \\' 'é' ''"
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[1;32mgreen\x1b[0m\tand", "\x1b[1;32mgreen\x1b[0m\tand"),
        ("\x1b]0;title\x07a\x1b[2Jb\x9bc\x1b", "ab·c·"),
        ("10 %\r90 %\r\n".removesuffix("\n"), "90 %"),
        ("\x1b\x1b[2J[2Ja\u202e\u200e", "·[2Ja··"),
    ],
)
def test_a_line_of_a_log_has_colours_and_no_other_control(printed: str, shown: str) -> None:
    assert formatting.terminal_line(printed) == shown
