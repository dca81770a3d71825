"""Each block of docs/your-own-task.md, as a reader would copy it."""

import re
from pathlib import Path

import pytest

from models.build import build_task
from models.catalog import problems
from runners.config import RunConfig

PAGE = Path(__file__).parents[2] / "docs" / "your-own-task.md"
MODULES = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRESETS = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_each_kind_has_its_block():
    assert [preset.split("\n")[0] for preset in PRESETS] == ["[model]", "[data]", "[task]"]
    assert len(MODULES) == 4  # and a strategy, which tests/verification takes


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_trains_what_its_module_makes(own, preset):
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
