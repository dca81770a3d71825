"""Each code block of docs/your-own-task.md works as it is written there."""

import re

import pytest
import torch

from distrain.models.build import build_task
from distrain.models.catalog import problems
from distrain.models.metric_state import compute, read_state
from distrain.models.streams import StreamSamples, is_stream
from distrain.runners.config.schema import RunConfig
from distrain.runners.training.task_optimizer import make_optimizer
from tests.support import ROOT

PAGE = ROOT / "docs" / "your-own-task.md"
MODULES = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRESETS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_each_section_has_its_code_block():
    assert [preset.split("\n")[0] for preset in PRESETS] == [
        "[model]",
        "[data]",
        "[data]",
        "[task]",
        "[task]",
    ]
    assert len(MODULES) == 6  # and a strategy, which tests/verification takes


@pytest.mark.parametrize("preset", PRESETS)
def test_the_task_of_each_preset_trains(own, preset):
    for name, text in MODULES:
        own(name, text)
    config = RunConfig.from_toml(preset)
    names = {"task": config.task.name, "model": config.model.name, "data": config.data.name}
    assert problems(**names) == []
    task = build_task(config.task, config.model, config.data)
    train = StreamSamples(task.train, None, 0) if is_stream(task.train) else task.train
    batch = task.collate(train.__getitems__(range(8)))
    loss = task.loss(task.model, batch)
    loss.backward()
    assert loss.isfinite()
    parts = "top1" if config.task.name != "lm:LanguageModel" else "loss"
    assert task.metrics(task.model, batch)[parts][1] == 8 * task.items_per_sample


def test_the_language_model_of_the_page_gives_groups_and_a_perplexity(own):
    for name, text in MODULES:
        own(name, text)
    config = RunConfig.from_toml(PRESETS[-1])
    task = build_task(config.task, config.model, config.data)
    decaying, plain = make_optimizer(config.train, task, task.model)[0].param_groups
    assert (decaying["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert list(decaying["betas"]) == [0.9, 0.95]
    assert task.derived({"loss": 0.0}) == {"perplexity": 1.0}
    assert [task.schedule(step, 1000) for step in (0, 99, 399)] == [0.01, 1.0, 0.5]


def test_the_metric_of_the_page_is_the_same_in_parts_and_as_a_whole():
    (text,) = re.findall(r"```python\n(class F1:.*?)```", PAGE.read_text(), re.DOTALL)
    module = {}
    exec(text, module)
    found, wanted = torch.tensor([1, 1, 0, 1, 0]) > 0, torch.tensor([1, 0, 1, 1, 0]) > 0
    parts = [module["F1"](), module["F1"]()]
    for part, metric in zip((slice(3), slice(3, 5)), parts, strict=True):
        metric.update(found[part], wanted[part])
    whole = module["F1"]()
    assert compute("f1", whole, [read_state(part) for part in parts]) == {"f1": 2 * 2 / (3 + 3)}
