"""An integration whose library is missing says so in one sentence, and distrain needs none."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = ("accelerate", "lightning", "transformers")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import distrain.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: distrain.integrations.{name} needs the package {name}: ")


def test_the_package_itself_needs_no_library() -> None:
    code = (
        "import sys, distrain.integrations as here\n"
        "assert here.only_numbers({'a': 1, 'b': 'text', 'c': None}) == {'a': 1}\n"
        f"assert not {{'torch', *{LIBRARIES}}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
