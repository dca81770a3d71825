"""Host, devices, code and versions of runs: what they share, and which differences are unfair."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from distrain.runners import formatting
from distrain.runners.analysis.comparison.model import Difference
from distrain.runners.analysis.comparison.sentences import join_names
from distrain.runners.records.reader import Record
from distrain.runners.records.state import RunState

# Code may be what is compared, and a commit between two runs may not matter.
FAIR = ("commit", "uncommitted", "python", "distrain", "textual")


def compare_provenance(
    records: Sequence[Record], names: Sequence[str]
) -> tuple[dict[str, Any], list[Difference], list[str]]:
    """Return the provenance that all share, with a list of the runs as "records"; the
    differences; and a sentence for each difference.
    """
    states = [record.state for record in records]
    tables = [_provenance_table(state) for state in states]
    shared: dict[str, Any] = {"made": formatting.date(time.time())}
    differences = []
    warnings = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        known = set(values) - {None}
        if len(known) > 1:
            differences.append(Difference(key=key, values=values, fair=key in FAIR))
            pairs = [
                f"{value or 'unknown'} ({name})" for name, value in zip(names, values, strict=True)
            ]
            warnings.append(f"{key} differs: {join_names(pairs)}")
        elif known:
            shared[key] = known.pop()
    shared["records"] = [_run_entry(record) for record in records]
    return shared, differences, warnings


def describe_provenance(provenance: dict[str, Any]) -> dict[str, str]:
    """Return what may affect the figures, by label; unknown values are left out."""
    git = provenance.get("git") or {}
    host = provenance.get("host") or {}
    commit = git.get("commit", "")[:12]
    if git.get("dirty"):
        commit += " with changes"
    elif commit and git.get("problem"):
        commit += " with unknown changes"
    table = {
        "host": host.get("name"),
        "processor": host.get("cpu"),
        "system": host.get("system"),
        "commit": commit,
        "uncommitted": git.get("diff_sha256", "")[:8],
        **provenance.get("versions", {}),
    }
    return {key: str(value) for key, value in table.items() if value}


def _provenance_table(state: RunState) -> dict[str, str]:
    devices = state.plan.devices if state.plan else ()
    gpus = ", ".join(sorted({device.name for device in devices if device.name}))
    versions = state.facts.versions if state.facts else {}
    table = {"host": state.host, **describe_provenance(state.provenance), "GPUs": gpus, **versions}
    return {key: str(value) for key, value in table.items() if value}


def _run_entry(record: Record) -> dict[str, Any]:
    state = record.state
    return {
        "id": record.id,
        "folder": str(record.dir),
        "status": state.status,
        "started": formatting.date(state.started),
        "command": formatting.shell_words(state.command),
        "notes": record.meta.notes,
    }
