from types import SimpleNamespace

import pytest


@pytest.fixture
def section():
    """Sections of a config, as `runners.config` has them."""

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
    """Write a user's own module into the folder that the command is given in."""
    monkeypatch.chdir(tmp_path)

    def write(module, text):
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write
