"""What there is of Slurm here, for a person who wonders whether and how it can be used."""

from __future__ import annotations

import shutil
from typing import Any

from runners.errors import DistrainError
from runners.slurm.commands import asked
from runners.slurm.nodes import SOON_S, own_address


def survey() -> dict[str, Any]:
    """Within bounded time: the `version`, `partitions` ({name, limit, nodes, gpus}, as sinfo writes
    them; the usual one has a star), the `address` at which nodes would report, and `why` some of
    this is not known.
    """
    found: dict[str, Any] = {"version": None, "partitions": [], "address": None, "why": ""}
    if not shutil.which("sbatch"):
        return found | {"why": "there is no sbatch: this is no login node of a Slurm cluster"}
    try:
        found["version"] = asked("sinfo", "--version", patience=SOON_S)
        found["partitions"] = _partitions()
        found["address"] = own_address(None)
    except DistrainError as error:
        found["why"] = str(error)
    return found


def _partitions() -> list[dict[str, str]]:
    rows = asked("sinfo", "--noheader", "--format=%P|%l|%D|%G", patience=SOON_S).splitlines()
    found = [
        dict(zip(("name", "limit", "nodes", "gpus"), row.split("|"), strict=True)) for row in rows
    ]
    return [row | {"gpus": row["gpus"].replace("(null)", "")} for row in found]
