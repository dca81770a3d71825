"""Evaluations as columns of numbers give back what was put in."""

from __future__ import annotations

import math
import random

from distrain.runners.protocol.events import Evaluation, Metric
from distrain.runners.records.evaluation_history import EvaluationHistory


def evaluation(number: int, **metrics: Metric) -> Evaluation:
    return Evaluation(
        time=1.7e9 + number / 7,
        epoch=number // 10,
        step=number,
        samples=360,
        seconds=0.01 * number,
        metrics=metrics,
    )


def test_a_history_is_a_list_of_evaluations() -> None:
    draw = random.Random(1)
    history = EvaluationHistory()
    listed: list[Evaluation] = []
    for number in range(200):
        names = draw.sample(["loss", "top1", "val/top1", "own"], draw.randint(0, 4))
        found = {
            name: Metric(draw.choice([None, draw.random()]), draw.randint(0, 3)) for name in names
        }
        history.append(evaluation(number, **found))
        listed.append(evaluation(number, **found))
        if number == 120:
            history.discard_after(100)
            del listed[101:]
    assert list(history) == listed
    assert history[-1] == listed[-1]
    assert history[3:9:2] == listed[3:9:2]
    copied = history.copy()
    history.append(listed[0])
    assert list(copied) == listed


def test_a_curve_has_the_evaluations_with_its_metric() -> None:
    history = EvaluationHistory()
    history.append(evaluation(1, loss=Metric(4.0, 2)))
    history.append(evaluation(2, top1=Metric(1.0, 2)))
    history.append(evaluation(3, loss=Metric(None, 2), top1=Metric(2.0, 2)))
    x, y = history.curve("loss", "step")
    assert list(x) == [1.0, 3.0]
    assert y[0] == 2.0
    assert math.isnan(y[1])
    assert [list(column) for column in history.curve("top1", "epoch")] == [[0.0, 0.0], [0.5, 1.0]]
    assert [list(column) for column in history.curve("other", "time")] == [[], []]
    assert history.names == ["loss", "top1"]
    history.discard_after(1)
    assert history.names == ["loss"]
