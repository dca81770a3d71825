"""Each code block of docs/your-own-task.md works as it is written there."""

import re

import pytest

from distrain.models.build import build_task
from distrain.models.catalog import problems
from distrain.runners.config.schema import RunConfig
from tests.support import ROOT

PAGE = ROOT / "docs" / "your-own-task.md"
MODULES = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRESETS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_each_section_has_its_code_block():
    assert [preset.split("\n")[0] for preset in PRESETS] == ["[model]", "[data]", "[task]"]
    assert len(MODULES) == 4  # and a strategy, which tests/verification takes


@pytest.mark.parametrize("preset", PRESETS)
def test_the_task_of_each_preset_trains(own, preset):
    for name, text in MODULES:
        own(name, text)
    config = RunConfig.from_toml(preset)
    names = {"task": config.task.name, "model": config.model.name, "data": config.data.name}
    assert problems(**names) == []
    task = build_task(config.task, config.model, config.data)
    batch = task.collate(task.train.__getitems__(range(8)))
    loss = task.loss(task.model, batch)
    loss.backward()
    assert loss.isfinite()
    assert task.metrics(task.model, batch)["top1"][1] == 8
