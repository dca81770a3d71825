"""Names of files are bytes; records are UTF-8, and so are the paths in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from distrain.runners.errors import ConfigError


def require_utf8(arguments: Sequence[str]) -> None:
    """Raise ConfigError where an argument or a folder that records name is not valid UTF-8."""
    for what, text in [*(("argument", each) for each in arguments), *_recorded_folders()]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the {what} {text!a} is not valid UTF-8") from None


def _recorded_folders() -> Iterator[tuple[str, str]]:
    """Yield the folders whose paths are in the record of a run."""
    with suppress(OSError):  # it was deleted
        yield "current folder", os.getcwd()
    for name in ("DISTRAIN_RUNS_DIR", "TMPDIR"):
        yield f"folder ${name}", os.environ.get(name, "")
