"""Which packages each use loads, and so how long it takes."""

import json
import subprocess
import sys

import pytest

LOADED = "import json, sys; print(json.dumps([m for m in sys.modules if '.' not in m]))"


def loaded_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_checking_a_preset_loads_no_torch():
    loaded = loaded_after(
        "import distrain.models.catalog, distrain.models.files, distrain.models.errors\n"
        "found = distrain.models.catalog.problems(task='a:b', model='resnet50', data='digits')\n"
        "assert [key for key, _ in found] == ['task.name'], found"
    )
    assert not loaded & {"torch", "torchvision", "sklearn", "numpy", "runners"}


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits_load_neither_scikit_learn_nor_torchvision(model):
    loaded = loaded_after(
        "from types import SimpleNamespace as S\n"
        "from distrain.models.build import build_task\n"
        "limits = dict(root=None, download=False, train_limit=None, eval_limit=None)\n"
        "task = build_task(S(name='classification', args={}), "
        f"S(name='{model}', args={{}}), S(name='digits', args={{}}, **limits))\n"
        "task.loss(task.model, task.train.__getitems__([0, 1]))"
    )
    assert "torch" in loaded
    assert not loaded & {"torchvision", "sklearn", "runners"}


def test_a_torchvision_that_can_be_imported_is_not_changed(tmp_path):
    (tmp_path / "torchvision.py").write_text("works = True")
    loaded_after(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import torch\n"
        "from distrain.models.torchvision_compat import torchvision\n"
        "assert torchvision.works\n"
        "assert not hasattr(torch.ops.torchvision, 'nms')"
    )


def test_another_error_of_torchvision_is_not_hidden(tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('something else')")
    loaded_after(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "try:\n"
        "    import distrain.models.torchvision_compat\n"
        "except RuntimeError as error:\n"
        "    assert str(error) == 'something else'\n"
        "else:\n"
        "    raise SystemExit('it was hidden')"
    )
