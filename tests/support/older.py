"""Files that an older version has written: `tests/unit/records/data`, which must stay as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support import ROOT

DATA = ROOT / "tests" / "unit" / "records" / "data"
COMPLETED = "20261121-090000-before-3ocu"  # two ranks, two epochs of four steps, a checkpoint
WITH_JOURNAL = "20261121-100000-journal-yjj6"  # failed; its journal has an event of every type


def copy_records(runs_dir: Path) -> Path:
    """Copy the records to a runs folder and return it."""
    return Path(shutil.copytree(DATA / "records", runs_dir, symlinks=True))
