"""Where the figures come from: what all runs share, what each has of its own, and what of it
makes them unequal.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

from runners import words
from runners.comparison import Difference
from runners.comparison.verdicts import listed
from runners.record import Record
from runners.state import RunState

# The code may be what is compared; a commit between two runs may also be of no matter.
FAIR = ("commit", "uncommitted", "python", "distrain", "textual")


def origins(
    records: Sequence[Record], names: Sequence[str]
) -> tuple[dict[str, Any], list[Difference], list[str]]:
    """Provenance, what of it differs, and the same in sentences."""
    states = [record.state for record in records]
    tables = [_of(state) for state in states]
    shared: dict[str, Any] = {"made": words.date(time.time())}
    differences, warnings = [], []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        known = set(values) - {None}
        if len(known) > 1:
            differences.append(Difference(key=key, values=values, fair=key in FAIR))
            pairs = [
                f"{name} {value or 'unknown'}" for name, value in zip(names, values, strict=True)
            ]
            warnings.append(f"{key} differs: {listed(pairs)}")
        elif known:
            shared[key] = known.pop()
    shared["records"] = [_one(record, state) for record, state in zip(records, states, strict=True)]
    return shared, differences, warnings


def _of(state: RunState) -> dict[str, str]:
    devices = sorted({device.name for device in state.plan.devices} if state.plan else ())
    gpus = ", ".join(filter(None, devices))
    versions = state.facts.versions if state.facts else {}
    table = {"host": state.host, **told(state.provenance), "GPUs": gpus, **versions}
    return {key: str(value) for key, value in table.items() if value}


def told(provenance: dict[str, Any]) -> dict[str, str]:
    """What of it may bear on the figures, by the words for it."""
    git, host = provenance.get("git") or {}, provenance.get("host") or {}
    table = {
        "host": host.get("name"),
        "processor": host.get("cpu"),
        "system": host.get("system"),
        "commit": git.get("commit", "")[:12] + (" with changes" if git.get("dirty") else ""),
        "uncommitted": git.get("diff_sha256", "")[:8],
        **provenance.get("versions", {}),
    }
    return {key: str(value) for key, value in table.items() if value}


def _one(record: Record, state: RunState) -> dict[str, Any]:
    return {
        "id": record.id,
        "folder": str(record.dir),
        "status": state.status,
        "started": words.date(state.started),
        "command": shlex.join(state.command),
        "notes": record.meta.notes,
    }
