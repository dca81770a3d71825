import sys
from types import SimpleNamespace

import pytest

from distrain.models.importing import make_importable, user_folders


@pytest.fixture
def section():
    """Return a function that makes sections of a config, like those of `config.schema`."""

    def make(name, root=None, download=False, train_limit=None, eval_limit=None, **args):
        return SimpleNamespace(
            name=name,
            args=args,
            root=root,
            download=download,
            train_limit=train_limit,
            eval_limit=eval_limit,
        )

    return make


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a function that writes a user's own module into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    make_importable(user_folders(None))

    def write(module, text):
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write
